"""The command line of Toolchart and the checks behind `toolchart doctor`."""
