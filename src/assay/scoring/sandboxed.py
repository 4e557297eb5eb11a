"""Runs inside the sandbox: `sandbox` passes the text of this file to a bare Python there.

It takes an order from its input, gives up what a program must not have (memory, time, files, processes, signals to others),
says that it has started, runs the program, and says the word of the order only when the program has run to its end.
"""

import ctypes
import errno
import json
import math
import os
import platform
import resource
import struct
import sys

DENIED = {
    "x86_64": (
        (57, 58, 272, 308, 165, 166, 155, 161, 101, 321, 323, 250, 248, 249, 298, 319, 29, 68, 240, 425, 426, 427, 428,
         429, 430, 442, 129, 297, 424, 310, 311, 312, 434, 438, 440, 448), (62, 200, 234), 56, 41, 0xC000003E),
    "aarch64": (
        (97, 268, 40, 39, 41, 51, 117, 280, 282, 219, 217, 218, 241, 279, 194, 186, 180, 425, 426, 427, 428, 429, 430,
         442, 138, 240, 424, 270, 271, 272, 434, 438, 440, 448), (129, 130, 131), 220, 198, 0xC00000B7),
}  # fmt: skip
"""By machine: fork, vfork, unshare, setns, mounts, roots, ptrace, bpf, userfaultfd, keys, perf, memfd, System V's and
POSIX's shared memory and queues, io_uring, signals in queues and by file, the memory and files of other processes; then kill,
tkill and tgkill, which a process may use on itself; then clone, socket, and the kernel's number for the machine."""
FAMILIES = 1, 2, 10, 16
"""Sockets that end in the namespace of the network: local ones, IPv4, IPv6 and netlink. Those to the host of a virtual machine
do not."""

CLONE3, X32, CLONE_THREAD = 435, 0x40000000, 0x10000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER, SET_DUMPABLE = 38, 22, 2, 4
MEGABYTE = 1 << 20


def limit(seconds: float, memory: int, file_size: int) -> None:
    """Limit what the program may use of the machine."""
    for what, most in (
        (resource.RLIMIT_AS, memory * MEGABYTE),
        (resource.RLIMIT_CPU, math.ceil(seconds) + 1),
        (resource.RLIMIT_FSIZE, file_size * MEGABYTE),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(what, (most, most))


def stay_behind() -> None:
    """Leave the program to a child where this is the first process of the sandbox, which dies of no signal from within.

    The child has its own session: its group is not that of the processes that started the sandbox.
    """
    ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)  # so that the child cannot write to the memory of this process
    child = os.fork()
    if child == 0:
        os.setsid()
        return
    os.waitpid(child, 0)
    os._exit(0)


def system_call_filter(machine: str, process: int) -> bytes:
    """A filter for the kernel: threads may be made and processes may not, nor what would undo the sandbox.

    Signals go to this process only.
    """
    denied, signals, clone, socket, number = DENIED[machine]
    no = RETURN, 0, 0, ERROR | errno.EPERM
    rules = [
        (LOAD, 0, 0, 4),  # which machine is spoken to
        (EQUAL, 1, 0, number),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),  # which call
        (AT_LEAST, 0, 1, X32),
        no,
    ]
    for call in denied:
        rules += [(EQUAL, 0, 1, call), no]
    for call in signals:
        rules += [(EQUAL, 0, 4, call), (LOAD, 0, 0, 16), (EQUAL, 1, 0, process), no, (RETURN, 0, 0, ALLOW)]
    rules += [(EQUAL, 0, len(FAMILIES) + 3, socket), (LOAD, 0, 0, 16)]
    rules += [(EQUAL, len(FAMILIES) - place, 0, family) for place, family in enumerate(FAMILIES)]
    rules += [
        no,
        (RETURN, 0, 0, ALLOW),
        (EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, ERROR | errno.ENOSYS),  # its flags cannot be looked at; the C library then takes clone
        (EQUAL, 0, 3, clone),
        (LOAD, 0, 0, 16),  # its flags
        (ANY_BIT, 1, 0, CLONE_THREAD),
        no,
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)


def deny_processes() -> None:
    """Have the kernel refuse new processes, signals to others, and calls that only help to break out. There is no way back."""
    code = system_call_filter(platform.machine(), os.getpid())
    text = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(text)))
    library = ctypes.CDLL(None, use_errno=True)
    for arguments in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0)):
        if library.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


def main() -> None:
    order = json.loads(sys.stdin.buffer.read())
    if os.getpid() == 1:
        stay_behind()
    report, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    sys.path += order["packages"]
    limit(order["seconds"], order["memory"], order["file_size"])
    deny_processes()
    os.environ.clear()
    for standard in range(3):
        os.dup2(nothing, standard)
    os.write(report, b"started\n")
    exec(compile(order["program"], "<program>", "exec"), {"__name__": "__main__"})  # the point of it all
    os.write(report, order["word"].encode())
    os._exit(0)


if __name__ == "__main__":
    main()
