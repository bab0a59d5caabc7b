#!/bin/sh
# sh deploy/secrets.sh [FOLDER]: makes the secrets of docker-compose.yml that are not there yet, in
# deploy/secrets, which git ignores. What is there stays: Neo4j knows the password of its first start.
set -eu
folder=${1:-$(dirname "$0")/secrets}
# Compose mounts files with the modes that they have here, and the containers' users are not you: the
# files are readable, the folder is yours alone.
umask 022
mkdir -p "$folder"
chmod 0700 "$folder"

random() {
    od -An "-N${1:-24}" -tx1 /dev/urandom | tr -d ' \n'
}

# Printed as it is, without a line end, which some of the readers would take for a part of it.
keep() {
    [ -s "$folder/$1" ] || printf '%s' "$2" > "$folder/$1"
}

keep recollect_redis_password "$(random)"
keep recollect_neo4j_password "$(random)"
keep recollect_derivations_password "$(random)"
keep recollect_master_key "$(random 32)"
keep neo4j_auth "neo4j/$(cat "$folder/recollect_neo4j_password")"
keep grafana_password "$(random)"
keep recollect_api_keys "[
  {\"name\": \"agents\", \"key\": \"$(random)\", \"tenant\": \"default\", \"role\": \"write\"},
  {\"name\": \"operator\", \"key\": \"$(random)\", \"tenant\": \"*\", \"role\": \"admin\"}
]"
echo "$folder: recollect_api_keys has the keys of the API, grafana_password that of admin;"
echo "copy recollect_master_key elsewhere: without it nothing that is sealed can be read"
