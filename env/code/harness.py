# Runs programs, each in a process of its own that is forked for it, so that nothing of one is
# seen by the next. Reads a request on standard input:
#
#   CPU_S WALL_S MEMORY_BYTES OUTPUT_BYTES PROGRAMS
#   SOURCE_BYTES INPUTS        for every program, then its source and one line for every input
#
# and says "ready" and answers for every program "LIMIT BYTES" (LIMIT is - for none) and so many bytes: what the
# program's process wrote. That is "T" where an input begins, a line for every list that the
# function yields, "E" where it ends by itself and "X WHY" where it raises. What is right is judged
# elsewhere: nothing here knows it. The modules are the few that start fast.
#
# Programs are kept from one another: none can open what this process has open, as its /proc is shut to
# them, and all that a program started is ended before the next one begins.
import _signal
import os
import resource
import select
import sys
import time


PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36


def shut():
    """Has /proc of this process, and of those it forks, belong to root, and orphans come to it."""
    try:
        import ctypes
    except ImportError:
        return  # a Python without it has no way to ask: a program is then on its honour
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_DUMPABLE, 0), (PR_SET_CHILD_SUBREAPER, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def program(source, inputs, out, cpu_s, memory):
    try:
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("1000")  # where memory runs out, this one ends and not who runs it
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _signal.setitimer(_signal.ITIMER_PROF, cpu_s)
    say = lambda text: os.write(out, text.encode("utf-8", "replace") + b"\n")
    try:
        names = {"__name__": "program"}
        exec(compile(source, "program", "exec"), names)
        f = names["f"]
    except BaseException as e:
        return say(why(e))
    for x in inputs:
        say("T")
        try:
            for value in f(x):
                say("=" + repr(value).replace("\n", " "))
            say("E")
        except BaseException as e:
            say(why(e))


def why(error):
    if isinstance(error, MemoryError):
        return "X out_of_memory"
    if isinstance(error, BlockingIOError):
        return "X processes"
    return "X " + type(error).__name__


def judged(source, inputs, cpu_s, wall_s, memory, most):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(read)
            null = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            program(source, inputs, write, cpu_s, memory)
        finally:
            os._exit(0)
    os.close(write)
    said, limit, until = b"", "-", time.monotonic() + wall_s
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            limit = "timeout"
            break
        chunk = os.read(read, 65536)
        if not chunk:
            break
        said += chunk
        if len(said) > most:
            said, limit = said[:most], "output"
            break
    os.close(read)
    return said, fate(pid, limit, until)


def fate(pid, limit, until):
    """Ends a program's process with all of its group, and says which limit it met."""
    gone, status = os.waitpid(pid, os.WNOHANG)
    while not gone and limit == "-" and time.monotonic() < until:
        time.sleep(0.001)  # it has closed its pipe, and mostly ends just now
        gone, status = os.waitpid(pid, os.WNOHANG)
    if not gone:
        limit = "timeout" if limit == "-" else limit
        end(os.kill, pid)
    end(os.killpg, pid)
    if not gone:
        os.waitpid(pid, 0)
    elif os.WIFSIGNALED(status):
        signal = os.WTERMSIG(status)
        limit = {int(_signal.SIGPROF): "timeout", int(_signal.SIGKILL): "out_of_memory"}.get(signal, limit)
    return limit


def end_all():
    """Ends what a program left behind, which came to this process as its parents ended."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for pid in children():
                    end(os.kill, pid)
                os.waitpid(-1, 0)
    except ChildProcessError:
        pass


def children():
    own = str(os.getpid()).encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/" + pid + "/stat", "rb") as f:
                if f.read().rpartition(b") ")[2].split()[1] == own:
                    yield int(pid)
        except OSError:
            pass  # it has ended just now


def end(kill, pid):
    try:
        kill(pid, 9)
    except OSError:
        pass


def main():
    request = sys.stdin.buffer
    cpu_s, wall_s, memory, most, programs = request.readline().split()
    answers = sys.stdout.buffer
    shut()
    answers.write(b"ready\n")
    answers.flush()
    for _ in range(int(programs)):
        size, count = map(int, request.readline().split())
        source = request.read(size)
        inputs = [eval(request.readline(), {}) for _ in range(count)]
        said, limit = judged(source, inputs, float(cpu_s), float(wall_s), int(memory), int(most))
        end_all()
        answers.write(b"%s %d\n" % (limit.encode(), len(said)) + said)
        answers.flush()


main()
