"""The pure half of Toolchart: values, charts, the machine, the core, proofs and diagrams. No I/O."""
