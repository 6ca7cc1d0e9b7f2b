package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/engine/fleet"
)

// behaves says what this program is where a test has started it as another.
const behaves = "HEADWAY_TEST_BEHAVES"

// TestMain plays an engine, what an engine starts, or a control plane that is killed.
func TestMain(m *testing.M) {
	switch os.Getenv(behaves) {
	case "":
		os.Exit(m.Run())
	case "broken":
		fmt.Println("no such model")
		os.Exit(3)
	case "plane":
		plane(os.Args[1])
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		serve(os.Args[1])
	default:
		serve(os.Args[1])
	}
}

// serve answers at a port, beside a child in a group of its own that would outlive it.
func serve(port string) {
	if port == "child" {
		if os.Getenv("SPT_NOENV") == "" {
			rename()
		}
		for { // select would end the program as a deadlock, without cgo
			_ = syscall.Pause()
		}
	}
	child := exec.Command(os.Args[0], "child")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: os.Getenv(behaves) == "scatter"}
	if err := child.Start(); err != nil {
		panic(err)
	}
	http.HandleFunc("/pids", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%d %d\n", os.Getpid(), child.Process.Pid)
	})
	fmt.Println("serving at", port)
	panic(http.ListenAndServe("127.0.0.1:"+port, nil))
}

// rename writes over the environment that others see of this process, as a library does to make room for a longer name.
func rename() {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		panic(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on
	begin, _ := strconv.ParseInt(fields[50-3], 10, 64)
	end, _ := strconv.ParseInt(fields[51-3], 10, 64)
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	if _, err := memory.WriteAt(make([]byte, end-begin), begin); err != nil {
		panic(err)
	}
}

// plane is a control plane: it starts an engine, says so and waits to be killed.
func plane(dir string) {
	_ = os.Setenv(behaves, "scatter")
	ports, err := FreePorts(1)
	if err != nil {
		panic(err)
	}
	f, _, err := made(dir, ports)
	if err == nil {
		err = f.Acquire(context.Background(), 0)
	}
	fmt.Println(ports[0], err)
	for { // select would end the program as a deadlock, without cgo
		_ = syscall.Pause()
	}
}

// made is a fleet of this program.
func made(dir string, ports []int) (*fleet.Fleet, *Driver, error) {
	var names []string
	for i := range ports {
		names = append(names, fmt.Sprint("engine-", i))
	}
	d, err := New(Options{Command: []string{os.Args[0], "{port}", "{index}", "{name}"}, Names: names, Ports: ports, Dir: dir, Grace: 200 * time.Millisecond})
	if err != nil {
		return nil, nil, err
	}
	return fleet.New(fleet.Options{Driver: d, Names: names, Probe: func(ctx context.Context, engine int) error {
		_, _, err := pids(ctx, ports[engine])
		return err
	}}), d, nil
}

// pids asks an engine for its own and its child's.
func pids(ctx context.Context, port int) (engine, child int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/pids", port), nil)
	if err != nil {
		return 0, 0, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	_, err = fmt.Fscan(response.Body, &engine, &child)
	return engine, child, err
}

// watched is a process that a test waits for the end of.
func watched(t *testing.T, pid int) (ended func()) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return func() {}
	}
	if err != nil {
		t.Skipf("processes cannot be waited for here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() {
		t.Helper()
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n != 1 {
				t.Errorf("process %d still runs: %v", pid, err)
			}
			return
		}
	}
}

func fleetOf(t *testing.T, behaviour string, engines int) (*fleet.Fleet, *Driver, []int) {
	t.Helper()
	t.Setenv(behaves, behaviour)
	ports, err := FreePorts(engines)
	if err != nil {
		t.Fatal(err)
	}
	f, d, err := made(t.TempDir(), ports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, d, ports
}

// Engines come, are not started twice, are started again after they died, and go with what they started.
func TestEnginesComeAndGo(t *testing.T) {
	for _, behaviour := range []string{"serves", "deaf"} {
		f, d, ports := fleetOf(t, behaviour, 2)
		for range 2 {
			if err := errors.Join(f.Acquire(t.Context(), 0), f.Acquire(t.Context(), 1)); err != nil {
				t.Fatal(err)
			}
		}
		first, child, err := pids(t.Context(), ports[0])
		if err != nil {
			t.Fatal(err)
		}
		engineEnds, childEnds := watched(t, first), watched(t, child)
		if log, _ := os.ReadFile(d.LogPath(0)); strings.Count(string(log), "serving at") != 1 {
			t.Errorf("%s: the engine was started twice, or writes nowhere:\n%s", behaviour, log)
		}
		if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		engineEnds()
		childEnds()
		<-d.runs[0].done
		if err := f.Acquire(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		again, child, err := pids(t.Context(), ports[0])
		if err != nil || again == first {
			t.Fatalf("%s: process %d after %d, %v", behaviour, again, first, err)
		}
		engineEnds, childEnds = watched(t, again), watched(t, child)
		if err := errors.Join(f.Release(t.Context(), 0), f.Release(t.Context(), 0)); err != nil {
			t.Error(err)
		}
		engineEnds()
		childEnds()
		if _, _, err := pids(t.Context(), ports[1]); err != nil {
			t.Errorf("%s: the other engine: %v", behaviour, err)
		}
		if s := f.Status(); s[0].State != fleet.Away || s[0].Starts != 3 || s[1].State != fleet.Running {
			t.Errorf("%s: %+v", behaviour, s)
		}
	}
}

// What cannot start is said with what the program said last, at once.
func TestProgramsThatDoNotComeUp(t *testing.T) {
	f, d, _ := fleetOf(t, "broken", 1)
	err := f.Acquire(t.Context(), 0)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such model") || !strings.Contains(err.Error(), d.LogPath(0)) {
		t.Errorf("a program that ends: %v", err)
	}
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", d.o.Ports[0]))
	if err != nil {
		t.Skip("somebody took the port: ", err)
	}
	defer taken.Close()
	if err := f.Acquire(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "fleet.port") {
		t.Errorf("a port that is taken: %v", err)
	}
	for _, o := range []Options{{}, {Command: []string{""}}, {Command: []string{"x"}, Names: []string{"a"}}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	gone, err := New(Options{Command: []string{"/no/such/program"}, Names: []string{"a"}, Ports: []int{1}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if gone.o.Ports, err = FreePorts(1); err != nil {
		t.Fatal(err)
	}
	if err := gone.Start(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("no such program: %v", err)
	}
	for _, command := range [][]string{nil, {"/no/such/program"}} {
		if path, err := LookPath(command); err == nil {
			t.Errorf("%v was found at %s", command, path)
		}
	}
	if path, err := LookPath(os.Args[:1]); err != nil || path != os.Args[0] {
		t.Errorf("%s, %v", path, err)
	}
}

// A control plane that is killed leaves no engine behind, and the next one ends what its engine had
// started beside itself, though that has given itself a name.
func TestNoOrphans(t *testing.T) {
	dir := t.TempDir()
	killed := exec.Command(os.Args[0], dir)
	killed.Env = append(os.Environ(), behaves+"=plane")
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var port int
	var said string
	if _, err := fmt.Sscan(line, &port, &said); err != nil || said != "<nil>" {
		t.Fatalf("it says %q: %v", line, err)
	}
	engine, child, err := pids(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	engineEnds, childEnds := watched(t, engine), watched(t, child)
	_ = killed.Process.Kill()
	_ = killed.Wait()
	engineEnds()
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the engine's child should outlive it, or this tests nothing: %v", err)
	}
	var logged string
	_, err = New(Options{Command: []string{os.Args[0]}, Names: []string{"engine-0"}, Ports: []int{port}, Dir: dir, Logf: func(format string, args ...any) { logged += fmt.Sprintf(format, args...) }})
	if err != nil {
		t.Fatal(err)
	}
	childEnds()
	if !strings.Contains(logged, "1 processes of engines") {
		t.Errorf("it says %q", logged)
	}
}

// A log that is too long is put aside when a program starts.
func TestLogsAreBounded(t *testing.T) {
	f, d, _ := fleetOf(t, "serves", 1)
	if err := os.WriteFile(d.LogPath(0), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.LogPath(0), logBytesMax+1); err != nil {
		t.Fatal(err)
	}
	if err := f.Acquire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	now, err := os.Stat(d.LogPath(0))
	if aside, asideErr := os.Stat(filepath.Join(d.dir, "engine-0.log.1")); err != nil || asideErr != nil || aside.Size() != logBytesMax+1 || now.Size() > 1<<20 {
		t.Errorf("%v, %v", err, asideErr)
	}
}
