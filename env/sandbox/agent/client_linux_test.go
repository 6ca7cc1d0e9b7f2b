package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/env/sandbox"
)

// liar is the argument that makes the test's own program an agent that is none: it answers the
// first request well and the next with what it is told.
const liar = "-lie="

func TestMain(m *testing.M) {
	for _, arg := range os.Args[1:] {
		if lie, ok := strings.CutPrefix(arg, liar); ok {
			tellLies(lie)
			return
		}
	}
	os.Exit(m.Run())
}

func tellLies(lie string) {
	w := newWire(os.Stdin, os.Stdout)
	for {
		var r request
		if w.readHeader(&r) != nil {
			return
		}
		if _, err := w.readAll(1 << 30); err != nil {
			return
		}
		if r.Op == opSetup {
			_ = w.send(answer{Seq: r.Seq, Version: version, Held: &Held{}})
			continue
		}
		well := sandbox.Result{}
		switch lie {
		case "stop":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case "killed": // what it ran is, before it is itself
			fmt.Fprintln(os.Stderr, "begun")
			_ = w.readHeader(&request{})
			_ = w.send(answer{Seq: r.Seq, Result: &sandbox.Result{Exit: 137, Signal: "SIGKILL"}})
		case "end":
			fmt.Fprintln(os.Stderr, "the reason")
			os.Exit(3)
		case "noise":
			fmt.Print("panic: this is no frame of the protocol\n")
		case "long frame":
			fmt.Print("d\xff\xff\xff\xff")
		case "no json":
			_ = w.frame(kindHeader, []byte("{"))
			_ = w.end()
		case "another answer":
			_ = w.send(answer{Seq: r.Seq + 1, Result: &well})
		case "more output":
			_ = w.send(answer{Seq: r.Seq, Result: &well, Stdout: 1}, make([]byte, 2))
		case "long output":
			_ = w.send(answer{Seq: r.Seq, Result: &well, Stdout: 1 << 40})
		case "no result":
			_ = w.send(answer{Seq: r.Seq})
		case "no limit":
			_ = w.send(answer{Seq: r.Seq, Result: &sandbox.Result{Limit: "patience"}})
		}
	}
}

func start(t *testing.T, ctx context.Context, change func(*Options)) (*Box, error) {
	t.Helper()
	dir := t.TempDir()
	o := Options{
		ID:      "t.box",
		Command: &exec.Cmd{Path: "/proc/self/exe", Args: []string{Name}, Env: Environment()},
		Setup: Setup{
			Places: Places{Work: filepath.Join(dir, "work"), Tmp: filepath.Join(dir, "tmp"), Named: true},
			Limits: sandbox.Limits{Output: 1000}.WithDefaults(), Env: map[string]string{"PATH": "/usr/bin:/bin"},
		},
	}
	for _, place := range []string{o.Setup.Places.Work, o.Setup.Places.Tmp} {
		if err := os.Mkdir(place, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	change(&o)
	box, err := Start(ctx, o)
	if err == nil {
		t.Cleanup(func() {
			if err := box.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	return box, err
}

// TestLies: an agent that says what the protocol has not loses its box, and nobody waits for it.
func TestLies(t *testing.T) {
	for lie, want := range map[string]sandbox.Class{
		"end": sandbox.Lost, "noise": sandbox.Protocol, "long frame": sandbox.Protocol, "no json": sandbox.Protocol,
		"another answer": sandbox.Protocol, "more output": sandbox.Protocol, "long output": sandbox.Protocol,
		"no result": sandbox.Protocol, "no limit": sandbox.Protocol,
	} {
		t.Run(lie, func(t *testing.T) {
			ended := 0
			box, err := start(t, t.Context(), func(o *Options) {
				o.Command.Args = []string{"test", liar + lie}
				o.Ended = func() error { ended++; return nil }
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = box.Run(t.Context(), sandbox.Command{Argv: []string{"true"}})
			if sandbox.ClassOf(err) != want {
				t.Errorf("class %q, want %q: %v", sandbox.ClassOf(err), want, err)
			}
			if lie == "end" && (!strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit status 3")) {
				t.Errorf("the error does not say what the agent did: %v", err)
			}
			<-box.done
			if _, err := box.Read(t.Context(), "/work/x", 1); sandbox.ClassOf(err) == "" || errors.Is(err, sandbox.ErrTooLarge) {
				t.Errorf("a read afterwards: %v", err)
			}
			if ended != 1 {
				t.Errorf("Ended was called %d times", ended)
			}
		})
	}
}

// TestStopped: an agent that was stopped, with a pipe that is full or not, is ended by Close in
// bounded time, and whoever waits for an answer of it is told.
func TestStopped(t *testing.T) {
	for name, input := range map[string][]byte{"an empty pipe": nil, "a full pipe": make([]byte, 1<<20)} {
		t.Run(name, func(t *testing.T) {
			box, err := start(t, t.Context(), func(o *Options) {
				o.Command.Args, o.Patience = []string{"test", liar + "stop"}, time.Millisecond
			})
			if err != nil {
				t.Fatal(err)
			}
			if input != nil { // it stops before it reads what does not fit into the pipe
				if err := box.command.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			answer := make(chan error, 1)
			go func() { answer <- box.Write(context.Background(), "/work/x", input, 0o600) }()
			for box.waitsFor(0) {
				runtime.Gosched()
			}
			if err := box.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := <-answer; sandbox.ClassOf(err) != sandbox.Lost {
				t.Errorf("a write to it: %v", err)
			}
		})
	}
}

// TestClosedWhileItRuns: a command that is killed with its box has no result, also where its agent, which
// is killed after it, still says how it ended.
func TestClosedWhileItRuns(t *testing.T) {
	box, err := start(t, t.Context(), func(o *Options) { o.Command.Args = []string{"test", liar + "killed"} })
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		result, err := box.Run(context.Background(), sandbox.Command{Argv: []string{"true"}})
		if err == nil {
			err = fmt.Errorf("it has the result %+v", result)
		}
		ended <- err
	}()
	for !strings.Contains(box.said.String(), "begun") {
		runtime.Gosched()
	}
	if err := box.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-ended; sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("a command whose box was closed: %v", err)
	}
}

// waitsFor reports whether there are as many requests in progress.
func (b *Box) waitsFor(n int) bool { return len(b.turn) == n }

// TestResetAttributes: what a directory hands on beside its files does not outlive a reset.
func TestResetAttributes(t *testing.T) {
	box, err := start(t, t.Context(), func(*Options) {})
	if err != nil {
		t.Fatal(err)
	}
	work := box.options.Setup.Places.Work
	// Version 2; the owner may read, the group and others nothing.
	list := []byte("\x02\x00\x00\x00\x01\x00\x04\x00\xff\xff\xff\xff\x04\x00\x00\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff")
	for name, value := range map[string][]byte{"user.note": []byte("for the next"), "system.posix_acl_default": list} {
		if err := unix.Setxattr(work, name, value, 0); errors.Is(err, unix.ENOTSUP) {
			t.Skip("the temporary directory has no attributes")
		} else if err != nil {
			t.Fatal(name, err)
		}
	}
	if err := box.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	names := make([]byte, 1000)
	if n, err := unix.Listxattr(work, names); err != nil || strings.Contains(string(names[:n]), "user.") || strings.Contains(string(names[:n]), "acl") {
		t.Errorf("after a reset there are the attributes %q, %v", names[:max(n, 0)], err)
	}
}

// TestNeverEnds: a process that the kernel does not end keeps nobody waiting: Close says so, after
// it was killed many times.
func TestNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never, kills, ended := make(chan error), atomic.Int64{}, 0
		defer close(never)
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		box := &Box{
			options: Options{ID: "t.never", Kill: func() { kills.Add(1) }, Ended: func() error { ended++; return nil }},
			command: &exec.Cmd{Process: &os.Process{Pid: -1}}, in: out, out: in, said: &tail{},
			turn: make(chan struct{}, 1), killed: make(chan struct{}), done: make(chan struct{}),
		}
		go box.watch(func() error { return <-never })
		if err := box.Close(t.Context()); !errors.Is(err, errStuck) {
			t.Errorf("close: %v", err)
		}
		if kills.Load() < killTimes/2 || ended != 1 {
			t.Errorf("it was killed %d times, and what was made for it removed %d times", kills.Load(), ended)
		}
	})
}

// TestNoStart: what does not start leaves nothing, and says why.
func TestNoStart(t *testing.T) {
	ended := 0
	end := func() error { ended++; return nil }
	_, err := start(t, t.Context(), func(o *Options) {
		o.Command.Path, o.Ended = "/no/such/program", end
	})
	if sandbox.ClassOf(err) != sandbox.StartFailed || ended != 1 {
		t.Errorf("a program that is not there: %v, ended %d times", err, ended)
	}
	_, err = start(t, t.Context(), func(o *Options) {
		o.Command = exec.Command("/bin/sh", "-c", "echo no room for it >&2; exit 1")
		o.Ended = end
	})
	if sandbox.ClassOf(err) != sandbox.StartFailed || !strings.Contains(err.Error(), "no room for it") || ended != 2 {
		t.Errorf("a start that fails: %v, ended %d times", err, ended)
	}
	_, err = start(t, t.Context(), func(o *Options) {
		o.Started = func(int, Held) error { return errors.New("not as asked for") }
		o.Ended = end
	})
	if sandbox.ClassOf(err) != sandbox.StartFailed || !strings.Contains(err.Error(), "not as asked for") || ended != 3 {
		t.Errorf("a driver that is not content: %v, ended %d times", err, ended)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = start(t, ctx, func(o *Options) {
		o.Command = exec.Command("/bin/sleep", "1000")
		o.Ended = end
	})
	if sandbox.ClassOf(err) != sandbox.StartTimeout || !errors.Is(err, context.Canceled) || ended != 4 {
		t.Errorf("a start that takes too long: %v, ended %d times", err, ended)
	}
}

// TestVersions: an agent of another program says so.
func TestVersions(t *testing.T) {
	command := exec.Command("/proc/self/exe")
	command.Args, command.Env = []string{Name}, Environment()
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	w := newWire(out, in)
	var ans answer
	if err := errors.Join(w.send(request{Op: opSetup, Version: version + 1, Setup: &Setup{}}), w.readHeader(&ans)); err != nil {
		t.Fatal(err)
	}
	if ans.Fault == nil || !strings.Contains(ans.Fault.Text, "replaced") {
		t.Errorf("got %+v", ans)
	}
	in.Close()
	if err := command.Wait(); err != nil {
		t.Errorf("an agent whose client goes: %v", err)
	}
}

// TestFrames: what was written is read, however it comes, and a stream that is cut is no message.
func TestFrames(t *testing.T) {
	var text strings.Builder
	big := strings.Repeat("\x00\xffd", maxData)
	if err := newWire(nil, &text).send(request{Op: opWrite, Seq: 7}, []byte(big)); err != nil {
		t.Fatal(err)
	}
	w := newWire(iotest.HalfReader(strings.NewReader(text.String())), nil)
	var r request
	if err := w.readHeader(&r); err != nil || r.Op != opWrite || r.Seq != 7 {
		t.Fatalf("%+v %v", r, err)
	}
	if got, err := w.readAll(int64(len(big))); err != nil || string(got) != big {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, cut := range []int{1, 6, 100, text.Len() - 1} {
		w := newWire(strings.NewReader(text.String()[:cut]), nil)
		err := w.readHeader(&r)
		if err == nil {
			_, err = w.readAll(int64(len(big)))
		}
		if err == nil {
			t.Errorf("a message of %d bytes cut at %d is taken for one", text.Len(), cut)
		}
	}
	w = newWire(strings.NewReader(text.String()), nil)
	if err := w.readHeader(&r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.readAll(int64(len(big)) - 1); !errors.Is(err, errGarbled) {
		t.Errorf("more than was asked for: %v", err)
	}
}

// FuzzFrames: whatever comes ends with a message or an error, and takes no memory that was only
// announced.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("h\x00\x00\x00\x02{}e\x00\x00\x00\x00"))
	f.Add([]byte("h\x00\x00\x00\x02{}d\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		w := newWire(strings.NewReader(string(stream)), nil)
		var ans answer
		if w.readHeader(&ans) != nil {
			return
		}
		if got, err := w.readAll(100); err == nil && len(got) > 100 {
			t.Errorf("%d bytes of at most 100", len(got))
		}
	})
}
