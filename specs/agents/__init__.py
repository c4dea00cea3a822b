"""The example agents that ship with Toolchart: YAML files, each tested."""
