# What is done on the server for a box: one verb with its arguments, as JSON in base64 in the
# program's arguments; the answer is JSON on standard output. It is sent with every request, so that
# a server needs nothing but itself. Every verb may be asked for again.
import base64, ctypes, errno, fcntl, io, json, os, resource, select, shutil, signal, stat, subprocess, sys, tarfile, time


class Refuse(Exception):
    """kind is what the driver makes of it."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def raw(text):
    return base64.b64decode(text or "")


def text(content):
    return base64.b64encode(content).decode()


ask = json.loads(raw("".join(sys.argv[1:])))
store = ask["store"]
box = os.path.join(store, ask.get("id", "?"))
work = os.path.join(box, "work")
link = ask.get("link")


def inside(path):
    """A path of the box as it is on the server: /work is the box's own directory."""
    path = raw(path)
    if path == b"/work" or path.startswith(b"/work/"):
        return os.fsencode(work) + path[5:]
    return path


def there():
    if not os.path.isfile(os.path.join(box, "made")):
        raise Refuse("lost", "the box is not on the server")


def descendants(root):
    """Whoever comes of a process, by the parents that /proc names; threads, memory in bytes."""
    parents, threads, memory = {}, {}, {}
    page = os.sysconf("SC_PAGE_SIZE")
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = open("/proc/%s/stat" % name, "rb").read().rsplit(b")", 1)[1].split()
            statm = open("/proc/%s/statm" % name, "rb").read().split()
        except OSError:
            continue
        pid = int(name)
        # What they share, such as libraries, would be counted for each of them.
        parents[pid], threads[pid], memory[pid] = int(fields[1]), int(fields[17]), (int(statm[1]) - int(statm[2])) * page
    found, new = set(), {root}
    while new:
        new = {p for p, parent in parents.items() if parent in new} - found
        found |= new
    return found, sum(threads[p] for p in found), sum(memory[p] for p in found)


def end_all(root):
    """Ends the descendants of a process, until there are none."""
    while True:
        for pid in descendants(root)[0]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not descendants(root)[0]:
            return
        time.sleep(0.002)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def started(pid):
    try:
        return open("/proc/%d/stat" % pid, "rb").read().rsplit(b")", 1)[1].split()[19].decode()
    except OSError:
        return ""


def supervisor(job):
    """The process that runs a job, 0 when it is gone."""
    try:
        pid, begun = open(os.path.join(job, "supervisor")).read().split()
    except (OSError, ValueError):
        return 0
    return int(pid) if started(int(pid)) == begun else 0


def stop_jobs():
    for name in os.listdir(box):
        pid = supervisor(os.path.join(box, name)) if name.startswith("job-") else 0
        if pid:
            end_all(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            while supervisor(os.path.join(box, name)):
                end_all(pid)
                time.sleep(0.002)


def empty(directory):
    """Removes what is in a directory, whatever its modes."""
    for here, directories, _ in os.walk(directory):
        os.chmod(here, 0o700)
        for name in directories:
            path = os.path.join(here, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def locked():
    os.makedirs(store, mode=0o755, exist_ok=True)
    lock = open(os.path.join(store, "lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def boxes():
    return [n for n in os.listdir(store) if n != "lock" and not n.startswith(".")] if os.path.isdir(store) else []


def make():
    with locked():
        try:
            if open(os.path.join(box, "made")).read() == ask["nonce"]:
                return {}
        except OSError:
            pass
        if os.path.exists(box):
            raise Refuse("exists", "there is a box of this name")
        if len(boxes()) >= ask["boxes"]:
            raise Refuse("full", "the server has its boxes: " + ", ".join(sorted(boxes())))
        os.makedirs(work)
        if link:
            try:
                os.symlink(work, link)
            except FileExistsError:
                if not os.path.islink(link) or os.path.exists(link):
                    shutil.rmtree(box)
                    raise Refuse("start", "the server has a %s of its own: give boxes a directory" % link)
                os.unlink(link)
                os.symlink(work, link)
        with open(os.path.join(box, "made"), "w") as f:
            f.write(ask["nonce"])
    return {}


def destroy():
    if not os.path.isdir(box):
        return {"absent": True}
    with locked():
        if not os.path.isdir(box):
            return {"absent": True}
        try:
            os.unlink(os.path.join(box, "made"))  # nothing begins any more
        except FileNotFoundError:
            pass
        stop_jobs()
        if link and os.path.islink(link) and os.readlink(link) == work:
            os.unlink(link)
        empty(box)
        os.rmdir(box)
    return {}


def run():
    there()
    job = os.path.join(box, "job-" + ask["job"])
    try:
        os.mkdir(job)
    except FileExistsError:
        return wait(job)
    for name in os.listdir(box):
        old = os.path.join(box, name)
        if name.startswith("job-") and old != job and not supervisor(old):
            shutil.rmtree(old, ignore_errors=True)
    ready, begun = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        with open(os.path.join(job, "supervisor"), "w") as f:
            f.write("%d %s" % (os.getpid(), started(os.getpid())))
        os.write(begun, b".")
        try:
            answer = supervise()
        except BaseException as e:
            answer = {"error": "supervisor", "message": "%s: %s" % (type(e).__name__, e)}
        with open(os.path.join(job, "new"), "w") as f:
            json.dump(answer, f)
        os.rename(os.path.join(job, "new"), os.path.join(job, "result"))
        os._exit(0)
    os.wait()
    os.read(ready, 1)
    return wait(job)


def wait(job):
    """The result of a job, or that there is none yet."""
    deadline = time.monotonic() + ask["wait"]
    while True:
        alive = supervisor(job)
        try:
            return json.load(open(os.path.join(job, "result")))
        except FileNotFoundError:
            pass
        if not alive:
            there()
            raise Refuse("lost", "who ran the command is gone without a result")
        if time.monotonic() >= deadline:
            return {"running": os.path.join(job, "result")}
        time.sleep(0.003)


def confine():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (ask["disk"], ask["disk"]))


def begin(stdin):
    argv = [raw(a) for a in ask["argv"]]
    env = {raw(k): raw(v) for k, v in ask["env"]}
    env.setdefault(b"HOME", os.fsencode(work))
    try:
        return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=inside(ask["dir"]),
                                env=env, start_new_session=True, preexec_fn=confine), None
    except OSError as e:
        exit = 127 if e.errno in (errno.ENOENT, errno.ENOTDIR) else 126
        if e.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.isdir(inside(ask["dir"])):
            return None, {"error": "refused", "message": "the directory is not there"}
        return None, {"exit": exit, "stderr": text(os.fsencode(str(e) + "\n"))}


def supervise():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: nothing that a command starts gets away
    if ask.get("from"):
        stdin = open(ask["from"], "rb")
    else:
        stdin = open(os.path.join(box, "job-" + ask["job"], "stdin"), "w+b")
        stdin.write(raw(ask.get("stdin")))
        stdin.seek(0)
    begun = time.monotonic()
    child, failed = begin(stdin)
    if failed:
        return failed
    kept = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    seen = dict.fromkeys(kept, 0)
    limit, most = follow(child, kept, seen, begun)
    if child.poll() is None:
        child.kill()
        child.wait()
    end_all(os.getpid())
    drain(kept, seen)
    code = child.returncode
    out, err = child.stdout.fileno(), child.stderr.fileno()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = {"exit": code if code >= 0 else 128 - code, "wall": time.monotonic() - begun, "cpu": used.ru_utime + used.ru_stime,
              "memory": most, "limit": limit, "stdout": text(kept[out]), "stderr": text(kept[err]),
              "stdout_cut": seen[out] > len(kept[out]), "stderr_cut": seen[err] > len(kept[err])}
    if code < 0:
        answer["signal"] = signal.Signals(-code).name if -code in set(signal.Signals) else "SIG%d" % -code
        if -code == signal.SIGXFSZ and not limit:
            answer["limit"] = "disk"
    if limit:
        answer.update(exit=137, signal="SIGKILL")
    return answer


def read_some(fd, kept, seen):
    chunk = os.read(fd, 65536)
    seen[fd] += len(chunk)
    kept[fd] += chunk[: max(0, ask["output"] - len(kept[fd]))]
    return chunk


def drain(kept, seen):
    """What is left in the pipes once nobody writes."""
    for fd in kept:
        os.set_blocking(fd, False)
        try:
            while read_some(fd, kept, seen):
                pass
        except BlockingIOError:
            pass


def follow(child, kept, seen, begun):
    """Reads until the command ends or meets a limit, which it returns with the most memory it had."""
    poll = select.poll()
    for fd in kept:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    most, look, nap = 0, 0.0, 1
    while child.poll() is None:
        now = time.monotonic()
        if now - begun >= ask["time"]:
            return "timeout", most
        if now >= look:
            _, threads, memory = descendants(os.getpid())
            most, look = max(most, memory), now + 0.05
            if threads > ask["processes"]:
                return "processes", most
            if memory > ask["memory"]:
                return "out_of_memory", most
        ready = poll.poll(nap)
        nap = 1 if ready else min(2 * nap, 20)
        for fd, _ in ready:
            if not read_some(fd, kept, seen):
                poll.unregister(fd)
            if seen[fd] > 64 * ask["output"]:
                return "output", most
    return "", most


def read():
    there()
    fd = os.open(inside(ask["path"]), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as f:
        plain(f)
        content = f.read(ask["limit"] + 1)
    if len(content) > ask["limit"]:
        raise Refuse("large", "the file is longer than %d bytes" % ask["limit"])
    return {"content": text(content)}


def plain(f):
    if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
        raise Refuse("invalid", "no plain file")


def content():
    return open(ask["from"], "rb").read() if ask.get("from") else raw(ask.get("content"))


def write():
    there()
    path = inside(ask["path"])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600), "wb") as f:
        plain(f)
        f.truncate(0)
        f.write(content())
        os.fchmod(f.fileno(), ask["mode"])
    if ask.get("from"):
        os.unlink(ask["from"])
    return {}


def reset():
    there()
    stop_jobs()
    empty(work)
    os.chmod(work, 0o755)
    return {}


def snapshot():
    there()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        archive.add(work, arcname=".")
    return {"content": text(whole.getvalue())}


def restore():
    there()
    new = os.path.join(box, "restored")
    if os.path.isdir(new):
        shutil.rmtree(new)
    os.mkdir(new)
    try:
        with tarfile.open(fileobj=io.BytesIO(content()), mode="r:gz") as archive:
            archive.extractall(new)
    except (tarfile.TarError, EOFError, OSError, ValueError) as e:
        shutil.rmtree(new)
        raise Refuse("invalid", "no archive of a box: %s" % e)
    stop_jobs()
    empty(work)
    for name in os.listdir(new):
        os.rename(os.path.join(new, name), os.path.join(work, name))
    os.rmdir(new)
    return {}


def listing():
    return {"boxes": boxes()}


def probe():
    if not os.path.isdir("/proc/self"):
        raise Refuse("start", "the server has no /proc")
    with locked():
        pass
    return {"python": sys.version.split()[0]}


def attach():
    there()
    return {}


def stop():
    if os.path.isdir(box):
        stop_jobs()
    return {}


verbs = {"make": make, "destroy": destroy, "run": run, "read": read, "write": write, "reset": reset, "snapshot": snapshot,
         "restore": restore, "list": listing, "probe": probe, "attach": attach, "stop": stop}
try:
    answer = verbs[ask["verb"]]()
except Refuse as e:
    answer = {"error": e.kind, "message": str(e)}
except OSError as e:
    kind = {errno.ENOENT: "missing", errno.ENOTDIR: "missing", errno.EISDIR: "invalid", errno.ENXIO: "invalid", errno.ENOSPC: "disk", errno.EDQUOT: "disk"}.get(e.errno, "failed")
    if ask["verb"] in ("make", "destroy", "list", "probe"):
        kind = "start"
    answer = {"error": kind, "message": str(e)}
sys.stdout.write(json.dumps(answer))
