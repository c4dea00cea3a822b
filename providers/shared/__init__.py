"""What the wires of all hosts share: parts of requests and replies, failures, what models refuse."""
