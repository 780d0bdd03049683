"""A dashboard for a class: one machine, many browsers, with limits that keep it alive.

Prints the command and the address to write on the board; with --start it runs it.

    python examples/serve_class.py [folder of models] [--start]
"""

import socket
import subprocess
import sys


def main(folder: str | None = None, start: bool = False) -> list[str]:
    name = socket.gethostname()
    command = [
        sys.executable,
        "-m",
        "attnviz",
        "dashboard",
        "--host",
        "0.0.0.0",
        "--name",
        name,
        "--max-tokens",
        "1024",
    ]
    if folder is not None:
        command += ["--model-root", folder]
    print(f"open http://{name}:8501 in a browser on the same network")
    print("the command is:", " ".join(["attnviz", *command[3:]]))
    if start:
        subprocess.run(command, check=True)
    return command


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--start"]
    main(*arguments[:1], start="--start" in sys.argv)
