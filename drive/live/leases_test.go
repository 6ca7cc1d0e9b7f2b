package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// TestLeases holds leases to scripts. Each has three cells, of which the last is lost to begin with. A number of seconds lets
// them pass; "2" with a letter says of cell 2 that it is heard (h), and that it was lost before (b); w and r say that a word waits
// for room and has it. "!" looks, and has the cells that are lost with that behind it.
func TestLeases(t *testing.T) {
	for name, script := range map[string]string{
		"each once":                     "10s 1h 10s !2 !",
		"a lease and no more":           "15s ! 1s !1,2 !",
		"heard again, and silent again": "16s !1,2 2b 2h 15s ! 1s !2",
		"lost to begin with":            "60s !1,2 3b 60s !3",
		"a word waits for room":         "10s w 60s ! r ! 15s ! 1s !1,2",
		"two words wait":                "w w 60s r 60s ! r 15s ! 1s !1,2",
		"room renews no lost cell":      "16s !1,2 w r 1b 16s !1",
	} {
		now, rooms := int64(7e9), []func(){}
		l := leases{present: func() int64 { return now }}
		l.begin([]bool{false, false, true})
		for i, word := range strings.Fields(script) {
			var n int
			switch end := word[len(word)-1:]; {
			case word[0] == '!':
				got := strings.Trim(strings.ReplaceAll(fmt.Sprint(l.lose()), " ", ","), "[]")
				if got != word[1:] {
					t.Errorf("%s: word %d: lost %q, want %q", name, i, got, word)
				}
			case end == "s":
				fmt.Sscanf(word, "%ds", &n)
				now += int64(n) * 1e9
			case end == "w":
				rooms = append(rooms, l.wait())
			case end == "r":
				rooms[0]()
				rooms = rooms[1:]
			default:
				fmt.Sscanf(word, "%d", &n)
				if was := l.lost(int32(n)); was != (end == "b") {
					t.Errorf("%s: word %d: cell %d is lost: %t", name, i, n, was)
				}
				if back := l.hear(n); back != (end == "b") || l.lost(int32(n)) {
					t.Errorf("%s: word %d: cell %d is back: %t", name, i, n, back)
				}
			}
		}
	}
}

// TestLeasesBegin: a cell with an engine that serves, or joins, has a lease to begin with. One without is lost until it is heard.
func TestLeasesBegin(t *testing.T) {
	r := hearingBy(t, func(c *loop.Config) { c.EngineSlots, c.EngineCells = []int{1, 2, 2}, []int{0, 1, 1} })
	if !r.leases.lost(1) {
		t.Error("a cell that nobody knows has a lease")
	}
	r.l.Step(loop.Event{Kind: loop.RunStarted})
	r.l.Step(loop.Event{Kind: loop.EngineJoined, Engine: 1})
	r.leases.cells = nil
	r.beginLeases()
	if r.leases.lost(1) || r.leases.lost(0) {
		t.Error("a cell with an engine has no lease")
	}
}

// TestLeaseIsRenewed: the newest process of a cell renews its lease by whatever it says, also by what was taken or is missing
// something. What is refused renews nothing.
func TestLeaseIsRenewed(t *testing.T) {
	first := loop.Event{Kind: loop.FirstToken, Slot: 1}
	for name, test := range map[string]struct {
		say   func(r *Runtime) *cell.Event
		renew bool
	}{
		"the next word":          {func(*Runtime) *cell.Event { return said(2, first) }, true},
		"the hello again":        {func(r *Runtime) *cell.Event { return said(1, loop.Event{}, greeting(r)) }, true},
		"words are missing":      {func(*Runtime) *cell.Event { return said(5, first) }, true},
		"a new process":          {func(r *Runtime) *cell.Event { return said(1, loop.Event{}, greeting(r), incarnated(3)) }, true},
		"an old process":         {func(r *Runtime) *cell.Event { return said(1, loop.Event{}, greeting(r), incarnated(0)) }, false},
		"another cell":           {func(*Runtime) *cell.Event { return said(2, first, func(ev *cell.Event) { ev.Origin.Cell = "c" }) }, false},
		"what it cannot say":     {func(*Runtime) *cell.Event { return said(2, loop.Event{Kind: loop.Tick}) }, false},
		"a process of other use": {func(*Runtime) *cell.Event { return said(1, first, incarnated(3)) }, false},
	} {
		r, now := hearing(t), int64(1e9)
		r.leases.present = func() int64 { return now }
		if err := r.Receive(said(1, loop.Event{}, greeting(r))); err != nil {
			t.Fatal(err)
		}
		now += cell.Lease.Nanoseconds() - 1e9
		_ = r.Receive(test.say(r))
		now += 2e9
		if lost := r.leases.lose(); len(lost) == 0 != test.renew {
			t.Errorf("%s: lost %v", name, lost)
		}
	}
}

// incarnated makes an event one of another process.
func incarnated(n int64) func(*cell.Event) {
	return func(ev *cell.Event) { ev.Origin.Incarnation = n }
}

// TestWordsWaitForRoom: while a word waits for room, no cell is lost. The end of the run ends the wait.
func TestWordsWaitForRoom(t *testing.T) {
	r, now := hearing(t), int64(1e9)
	r.leases.present = func() int64 { return now }
	if err := r.Receive(said(1, loop.Event{}, greeting(r))); err != nil {
		t.Fatal(err)
	}
	for len(r.words) < cap(r.words) {
		r.words <- completion{}
	}
	ended := make(chan error, 2)
	wait := func(sequence int64) {
		go func() { ended <- r.Receive(said(sequence, loop.Event{Kind: loop.FirstToken, Slot: 1})) }()
		for waiting := false; !waiting; {
			r.leases.mu.Lock()
			waiting = r.leases.waiting == 1
			r.leases.mu.Unlock()
		}
	}
	wait(2)
	if now += 60e9; len(r.leases.lose()) > 0 {
		t.Error("a cell is lost while a word waits")
	}
	<-r.words
	if err := <-ended; err != nil || len(r.leases.lose()) > 0 {
		t.Errorf("%v, or a cell is lost once it has room", err)
	}
	wait(3)
	r.cancel(errPlanned)
	if err := <-ended; err != errPlanned {
		t.Error(err)
	}
}

// TestWordsLeaveRoom: what this process executes ends while words wait for room. A writer that another has deposed could not
// end otherwise: nobody reads its inbox any more, and cells follow its successor.
func TestWordsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := hearing(t)
		go func() {
			err := r.Receive(said(1, loop.Event{}, greeting(r)))
			for n := int64(2); err == nil; n++ {
				err = r.Receive(said(n, loop.Event{Kind: loop.FirstToken, Slot: 1}))
			}
		}()
		synctest.Wait()
		if r.leases.waiting != 1 {
			t.Fatal("no word waits for room")
		}
		posted := 0
		go func() {
			for range cap(r.inbox) - 1 {
				r.heard(&cell.Event{Event: loop.Event{Kind: loop.RolloutFailed}})
				posted++
			}
			r.effect(func() completion { return completion{} })
			r.wg.Wait()
			posted++
		}()
		synctest.Wait()
		if posted != cap(r.inbox) {
			t.Errorf("%d of %d effects end while a word waits", posted, cap(r.inbox))
		}
		r.cancel(errPlanned)
		for len(r.inbox) > 0 {
			<-r.inbox
			synctest.Wait()
		}
	})
}

// TestSilentCellFails: with the loss of a cell the log has the loss of each of its engines, and then the end of what they
// played. It says so once.
func TestSilentCellFails(t *testing.T) {
	for _, resumes := range []bool{false, true} {
		now := int64(1e9)
		r := hearingBy(t, func(c *loop.Config) { c.ResumeLost = resumes })
		r.leases.present = func() int64 { return now }
		r.step(&completion{event: loop.Event{Kind: loop.RunStarted}})
		hear := func(ev *cell.Event) {
			if err := r.Receive(ev); err != nil {
				t.Fatal(err)
			}
			if c := <-r.words; c.hello != nil {
				r.welcome(&c)
			} else {
				r.deliver(&c)
			}
		}
		hear(said(1, loop.Event{}, greeting(r)))
		hear(said(2, loop.Event{Kind: loop.WeightsLoaded, Engine: 1, Attempt: 1}))
		hear(said(3, loop.Event{Kind: loop.WeightsSwitched, Engine: 1, Attempt: 1}))
		if due := r.lookDue(); due != r.lookedAt+cell.Lease.Nanoseconds()/4 {
			t.Errorf("the lease is looked at in %d ns", due-r.lookedAt)
		}
		r.lines = nil
		at := r.enc.Position()
		now += 16e9
		r.loseSilent()
		r.loseSilent()
		if r.lookDue() != loop.NoTick || r.rejoinDue() != loop.NoTick {
			t.Error("something is due of a cell that is lost")
		}
		if err := r.Receive(said(1, loop.Event{}, greeting(r))); err != nil || len(r.words) > 0 || len(r.outside.signal) != 1 {
			t.Errorf("the hello comes again: %v, or nobody looks at the cell that is back", err)
		}
		var got []loop.EventKind
		reader := trace.NewReaderAt(strings.NewReader(string(r.lines)), at, trace.Header{})
		for rec, err := reader.Next(); err == nil; rec, err = reader.Next() {
			if rec.Event != nil && rec.Event.Kind != loop.Tick {
				got = append(got, rec.Event.Kind)
			}
		}
		want := []loop.EventKind{loop.EngineLost}
		if resumes {
			want = append(want, loop.RolloutFailed, loop.RolloutFailed)
		}
		if failed := r.l.Ledger().Failed; !slices.Equal(got, want) || failed != 2 {
			t.Errorf("resumes %t: the log has %v, want %v, and %d attempts failed", resumes, got, want, failed)
		}
	}
}
