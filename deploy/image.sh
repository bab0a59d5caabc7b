#!/usr/bin/env bash
# Builds the image without a daemon and without a registry of images, and tries it: on a Debian with
# buildah and mmdebstrap, as root. Writes an OCI archive where a file is named:
#   deploy/image.sh [FILE]
# PYTHON_IMAGE names a base that can be pulled; without it one is made of Debian's packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
suite=${DEBIAN_SUITE:-trixie}
work=$(mktemp -d)
store() { buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }
trap 'store rm --all > /dev/null || true; rm -rf "$work"' EXIT

base=${PYTHON_IMAGE:-}
if [ -z "$base" ]; then
    base=localhost/python
    mmdebstrap --quiet --variant=minbase \
        --include=python3,python3-venv,python-is-python3,ca-certificates "$suite" "$work/base.tar"
    printf 'FROM scratch\nADD base.tar /\n' > "$work/Containerfile"
    store build --quiet --isolation chroot --file "$work/Containerfile" --tag "$base" "$work"
fi
# A proxy of this machine may sign what packages come from.
store build --quiet --isolation chroot --build-arg "PYTHON_IMAGE=$base" \
    --volume /etc/ssl/certs:/etc/ssl/certs:ro --file deploy/Dockerfile --tag localhost/recollect .

container=$(store from localhost/recollect)
root=$(store mount "$container")
echo "size: $(du -sm "$root" | cut -f1) MB, of it the environment $(du -sm "$root/opt" | cut -f1)"
echo "user: $(store inspect --type image --format '{{.OCIv1.Config.User}}' localhost/recollect)"
echo "parts in the bill of materials: $(grep -o '"bom-ref"' "$root/opt/recollect/sbom.json" | wc -l)"

# As it is run: that user, nothing but /tmp to write to, the models from inside. The small edition
# needs no service beside it: it takes events, folds, answers and proves.
unshare --mount --pid --fork --kill-child sh -euc '
    mount --bind "$0" "$0"
    mount -o remount,bind,ro "$0"
    mount -t tmpfs -o mode=1777 none "$0/tmp"
    mount -t proc none "$0/proc"
    mount --rbind /dev "$0/dev"
    exec chroot --userspec=10001:10001 "$0" /usr/bin/env -i PATH=/opt/recollect/bin:/usr/bin:/bin \
        PYTHONDONTWRITEBYTECODE=1 RECOLLECT_API_PORT=0 RECOLLECT_METRICS_PORT=0 sh -euc "
            cd /tmp
            if touch /opt/written 2> /dev/null; then echo the root can be written to; exit 1; fi
            recollect --help > /dev/null
            recollect up --small --detach
            recollect import /opt/recollect/lib/python3*/site-packages/pipelines/scenarios/*incident*.jsonl --wait
            recollect ask \"why did the payment fail?\" | head -n 4
            recollect verify
            recollect down"
' "$root"

if [ $# -gt 0 ]; then
    store push --quiet localhost/recollect "oci-archive:$1:recollect"
    echo "written: $1, $(du -m "$1" | cut -f1) MB"
fi
