"""What the kernel knows of a process: its memory and the processor time it has used."""

from pathlib import Path


def resident(pid: int) -> float:
    """Its resident memory, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu(pid: int) -> float:
    """The CPU-seconds that it has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
