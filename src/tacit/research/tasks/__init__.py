"""What the commands of research do, as plain functions: no printing, no exit codes."""
