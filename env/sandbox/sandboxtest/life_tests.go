package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

func testClose(t *testing.T, s *suite) {
	box := s.box(t)
	works(t, box)
	var closers sync.WaitGroup
	for range 8 {
		closers.Go(func() {
			if err := box.Close(bounded(t)); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	closers.Wait()
	if err := box.Close(bounded(t)); err != nil {
		t.Errorf("closed again: %v", err)
	}
	s.isLost(t, box)
	if ids := s.list(t, s.owner); slices.Contains(ids, box.ID()) {
		t.Errorf("%s is still in the list", box.ID())
	}
}

// isLost is that nothing can be done with a box any more.
func (s *suite) isLost(t *testing.T, box sandbox.Box) {
	t.Helper()
	_, err := box.Run(bounded(t), shell("true"))
	wantClass(t, "run", err, sandbox.Lost)
	_, err = box.Read(bounded(t), sandbox.Work+"/x", 1)
	wantClass(t, "read", err, sandbox.Lost)
	wantClass(t, "write", box.Write(bounded(t), sandbox.Work+"/x", nil, 0o600), sandbox.Lost)
}

func (s *suite) list(t *testing.T, owner string) []sandbox.ID {
	t.Helper()
	ids, err := s.driver.List(bounded(t), owner)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return ids
}

// testCloseWhileRunning ends a command from outside, by Close and by Destroy, as it starts and
// while it runs.
func testCloseWhileRunning(t *testing.T, s *suite) {
	for name, end := range map[string]func(box sandbox.Box) error{
		"close":   func(box sandbox.Box) error { return box.Close(bounded(t)) },
		"destroy": func(box sandbox.Box) error { return s.driver.Destroy(bounded(t), box.ID()) },
	} {
		for _, calls := range []int{0, 50} {
			box := s.box(t)
			ended := make(chan error, 1)
			started := make(chan struct{})
			go func() {
				close(started)
				_, err := box.Run(bounded(t), shell("while :; do sleep 0.01; done"))
				ended <- err
			}()
			<-started
			for range calls { // gives it time to begin
				s.list(t, s.owner)
			}
			if err := end(box); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantClass(t, name+" while a command runs", <-ended, sandbox.Lost)
			s.isLost(t, box)
		}
	}
}

func testCancelled(t *testing.T, s *suite) {
	box := s.box(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := box.Run(gone, shell("true")); !errors.Is(err, context.Canceled) {
		t.Errorf("run with a context that has ended: %v", err)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	ended := make(chan error, 1)
	go func() {
		_, err := box.Run(ctx, shell("while :; do sleep 0.01; done"))
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
	// What runs may have cost the box; it must not have cost the answer.
	if result, err := box.Run(bounded(t), shell("echo well")); err != nil {
		wantClass(t, "after it", err, sandbox.Lost)
	} else if string(result.Stdout) != "well\n" {
		t.Errorf("after it: %s", described(result))
	}
}

func testCreateCancelled(t *testing.T, s *suite) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	id := s.id()
	if box, err := s.driver.Create(gone, id, s.spec()); !errors.Is(err, context.Canceled) {
		t.Errorf("create with a context that has ended: %v", err)
		if err == nil {
			box.Close(bounded(t))
		}
	}
	for _, after := range []time.Duration{time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		defer cancel()
		id := s.id()
		box, err := s.driver.Create(ctx, id, s.spec())
		if err == nil {
			box.Close(bounded(t))
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("create within %s: %v", after, err)
		}
		if ids := s.list(t, s.owner); slices.Contains(ids, id) {
			t.Errorf("what was made of %s within %s is still there", id, after)
		}
	}
}

// keepScript leaves what the kernel keeps when all that a command started has ended: a worse place of
// the first process and its threads, a shared memory, and a message queue. keptScript shows it.
const (
	keepScript = `for t in /proc/1/task/*; do t=${t##*/}
		renice -n 19 -p $t; ionice -c 3 -p $t; taskset -p 1 $t; chrt -i -p 0 $t
	done >/dev/null 2>&1; (ipcmk -M 4096; ipcmk -Q; ipcmk -S 1) >/dev/null 2>&1; true`
	keptScript = `nice; ionice 2>/dev/null; grep Cpus_allowed: /proc/self/status; chrt -p $$ 2>/dev/null | cut -d: -f2
		for f in shm msg sem; do if [ -e /proc/sysvipc/$f ]; then wc -l < /proc/sysvipc/$f; fi; done; true`
)

func testReset(t *testing.T, s *suite) {
	box := s.box(t)
	resetter, can := box.(sandbox.Resetter)
	if !can {
		t.Skip("boxes of this driver cannot be reset")
	}
	clean := says(t, box, "ls -a")
	kept := ""
	if s.boundary.Processes { // else they are the host's
		kept = says(t, box, keptScript)
	}
	for range 3 {
		if s.boundary.Processes {
			says(t, box, keepScript)
		}
		says(t, box, "echo x > file; mkdir -p closed/inner; : > closed/inner/f; chmod 000 closed/inner closed; ln -s /usr link; mkfifo fifo; : > .hidden; chmod 555 .; true")
		if s.boundary.Files {
			says(t, box, "echo x > /tmp/file; echo x > /tmp/.hidden; echo x > /dev/shm/file || true")
		}
		if err := resetter.Reset(bounded(t)); err != nil {
			t.Fatalf("reset: %v", err)
		}
		if got := says(t, box, "ls -a"); got != clean {
			t.Errorf("after a reset there is %q, want %q", got, clean)
		}
		if s.boundary.Files {
			if got := says(t, box, "ls -A /tmp /dev/shm 2>/dev/null | grep -e file -e hidden || echo nothing"); got != "nothing\n" {
				t.Errorf("after a reset there is %q", got)
			}
		}
		says(t, box, "echo writable > again; rm again")
		if s.boundary.Processes {
			if got := says(t, box, keptScript); got != kept {
				t.Errorf("after a reset the kernel has %q, want %q", got, kept)
			}
		}
	}
}

// inFlight leaves sockets that hold one another, and with them memory that no process has.
const inFlight = `python3 -c 'import array, os, socket
a, b = socket.socketpair(); memory = os.memfd_create("m"); os.write(memory, bytes(1 << 20))
for end in a, b: end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory, a.fileno(), b.fileno()]))])'`

// testResetUsed: a box is not reset where its network keeps something of its last user. A socket that nobody came to
// is nothing. The port of a connection stays taken, and so does the memory of sockets that hold one another.
func testResetUsed(t *testing.T, s *suite) {
	if !s.boundary.Network || s.Remote {
		t.Skip("the network is the host's, or the operator's")
	}
	box := s.box(t)
	resetter, can := box.(sandbox.Resetter)
	if !can {
		t.Skip("boxes of this driver cannot be reset")
	}
	says(t, box, `python3 -c 'import socket; socket.create_server(("127.0.0.1", 40001))'`)
	if err := resetter.Reset(bounded(t)); err != nil {
		t.Errorf("reset after nobody connected: %v", err)
	}
	for name, script := range map[string]string{"a connection": connected, "sockets that hold one another": inFlight} {
		box := s.box(t)
		says(t, box, script)
		if err := box.(sandbox.Resetter).Reset(bounded(t)); !errors.Is(err, errors.ErrUnsupported) || sandbox.ClassOf(err) != "" {
			t.Errorf("reset after %s: %v", name, err)
		}
	}
}

// connected leaves the port of a connection that has ended.
const connected = `python3 -c 'import socket
server = socket.create_server(("127.0.0.1", 40001)); socket.create_connection(("127.0.0.1", 40001))
server.accept()[0].close()'`

func testSnapshot(t *testing.T, s *suite) {
	box, other := s.box(t), s.box(t)
	snapshotter, can := box.(sandbox.Snapshotter)
	if !can {
		t.Skip("boxes of this driver have no snapshots")
	}
	says(t, box, `mkdir -p d/empty d/e; printf '\000\377' > d/e/bytes; echo run > d/program; chmod 755 d/program; chmod 600 d/e/bytes; ln -s e d/link; ln -s /nowhere dangling; : > nothing`)
	listing := `find . | sort; ls -l d/program d/e/bytes | cut -c1-10; readlink d/link dangling; od -An -tx1 d/e/bytes`
	want := says(t, box, listing)
	snapshot, err := snapshotter.Snapshot(bounded(t))
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	says(t, box, "rm -r d; echo other > dangling2")
	says(t, other, "echo was there > before; mkdir d; echo d > d/program")
	for name, box := range map[string]sandbox.Box{"the same box": box, "another box": other} {
		if err := box.(sandbox.Snapshotter).Restore(bounded(t), snapshot); err != nil {
			t.Fatalf("restore in %s: %v", name, err)
		}
		if got := says(t, box, listing); got != want {
			t.Errorf("in %s there is\n%s\nwant\n%s", name, got, want)
		}
	}
	for name, broken := range map[string][]byte{"nothing": nil, "no archive": bytes.Repeat([]byte("no archive"), 1000), "half": snapshot[:len(snapshot)/2]} {
		if err := other.(sandbox.Snapshotter).Restore(bounded(t), broken); err == nil {
			t.Errorf("%s was restored", name)
		}
		works(t, other)
	}
}

func testList(t *testing.T, s *suite) {
	one, other := s.box(t), s.box(t)
	ids := s.list(t, s.owner)
	for _, box := range []sandbox.Box{one, other} {
		if !slices.Contains(ids, box.ID()) {
			t.Errorf("%s is not in %q", box.ID(), ids)
		}
	}
	if ids := s.list(t, strings.TrimSuffix(s.owner, s.owner[len(s.owner)-1:])); len(ids) != 0 {
		t.Errorf("an owner whose name this one's begins with has %q", ids)
	}
	if ids := s.list(t, "nobody-"+s.owner); len(ids) != 0 {
		t.Errorf("nobody has %q", ids)
	}
	again, err := s.driver.Create(bounded(t), one.ID(), s.spec())
	if err == nil {
		t.Errorf("%s was made twice", one.ID())
		again.Close(bounded(t))
		return
	}
	works(t, one)
}

func testDestroy(t *testing.T, s *suite) {
	for _, id := range []sandbox.ID{s.id(), sandbox.ID(s.owner + ".never-made")} {
		if err := s.driver.Destroy(bounded(t), id); err != nil {
			t.Errorf("destroy of what is not there: %v", err)
		}
	}
	for _, id := range []sandbox.ID{"", "..", "../../etc.x"} {
		wantClass(t, "destroy "+string(id), s.driver.Destroy(bounded(t), id), sandbox.Refused)
	}
	box := s.box(t)
	works(t, box)
	var destroyers sync.WaitGroup
	for range 4 {
		destroyers.Go(func() {
			if err := s.driver.Destroy(bounded(t), box.ID()); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	destroyers.Wait()
	s.isLost(t, box)
	again, err := s.driver.Create(bounded(t), box.ID(), s.spec())
	if err != nil {
		t.Fatalf("the name cannot be had again: %v", err)
	}
	works(t, again)
	if err := again.Close(bounded(t)); err != nil {
		t.Error(err)
	}
}

func testManyAtOnce(t *testing.T, s *suite) {
	var makers sync.WaitGroup
	for i := range 6 {
		makers.Go(func() {
			box, err := s.driver.Create(bounded(t), s.id(), s.spec())
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			defer box.Close(bounded(t))
			name := sandbox.Work + "/" + strings.Repeat("x", i+1)
			if err := box.Write(bounded(t), name, []byte(box.ID()), 0o600); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			result, err := box.Run(bounded(t), shell("cat *; sleep 0.05"))
			if err != nil || string(result.Stdout) != string(box.ID()) {
				t.Errorf("%s: %s, %v", box.ID(), described(result), err)
			}
			if _, err := box.Read(bounded(t), name+"x", 100); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: a file of another: %v", box.ID(), err)
			}
		})
	}
	makers.Wait()
}
