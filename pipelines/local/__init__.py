"""The embedded services for one machine: real Valkey and real Neo4j as child processes.

Nothing outlives the process that started it, even when that is killed. `services.LocalServices`
holds the services inside this process; `supervisor.up`, `down` and `ensure_target` keep them under
supervisors of their own, so that they stay after this process ends; `workers` holds workers and
the API beside them. `python_process` is what every child that runs our own code is started with.
"""
