package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/transfer"
)

// stage is a receiver that does what it is told, or fails at it, without moving a byte.
type stage struct {
	name, engine, address string
	instance              string
	number                int
	fail                  func(protocol.ReceiverReply) string // "" to succeed
	told                  []protocol.ReceiverReply
	served, loaded        loop.Version
}

func (s *stage) run(ctx context.Context, c *transfer.Coordinator) error {
	s.served, s.loaded = loop.NoVersion, loop.NoVersion
	report := protocol.ReceiverRequest{}
	for {
		report.Instance = s.instance
		report.Engine, report.Stage, report.Address = s.engine, s.number, s.address
		report.Secret, report.Caller.Peer = "a secret of sixteen or more", netip.MustParseAddr("127.0.0.1")
		report.Served, report.Loaded, report.WaitS = s.served, s.loaded, 20
		command, err := c.Next(ctx, s.name, report)
		if err != nil {
			return err
		}
		report = protocol.ReceiverRequest{}
		if command.Seq == 0 {
			continue
		}
		s.told = append(s.told, command)
		report.Done = command.Seq
		if s.fail != nil {
			report.Error = s.fail(command)
		}
		switch {
		case report.Error != "":
			s.served, s.loaded = loop.NoVersion, loop.NoVersion
		case command.Kind == protocol.ReceiveLoad:
			s.loaded = command.Version
		default:
			s.served, s.loaded = command.Version, loop.NoVersion
		}
	}
}

// states is what everyone has come to, once all of them wait.
func states(c *transfer.Coordinator) string {
	synctest.Wait()
	var out []string
	for _, v := range c.Versions() {
		out = append(out, v.Engine+"/"+string(rune('0'+v.Stage))+" "+v.State+" "+string(rune('0'+max(v.Version, -1)))) // '/' is -1
	}
	return strings.Join(out, ", ")
}

// start runs stages in the bubble and returns what stops them.
func start(t *testing.T, c *transfer.Coordinator, stages ...*stage) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	for _, s := range stages {
		go func() {
			if err := s.run(ctx, c); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", s.name, err)
			}
		}()
	}
	synctest.Wait()
	return func() { cancel(); synctest.Wait() }
}

func TestTwoPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
		if err := c.Load(context.Background(), "none", 1); err != nil {
			t.Fatalf("an engine without receivers: %v", err)
		}
		a := &stage{name: "a", engine: "e", number: 0, address: "http://127.0.0.1:1/t"}
		b := &stage{name: "b", engine: "e", number: 1, address: "http://127.0.0.1:2/t"}
		stop := start(t, c, a, b)
		defer stop()
		if err := c.Switch(context.Background(), "e", 3); err == nil || !strings.Contains(err.Error(), "does not hold version 3") {
			t.Fatalf("a switch before the load: %v", err)
		}
		if err := c.Load(context.Background(), "e", 3); err != nil {
			t.Fatal(err)
		}
		if got := states(c); got != "e/0 serving /, e/1 serving /" {
			t.Errorf("loaded and not switched: %s", got)
		}
		if err := c.Switch(context.Background(), "e", 3); err != nil {
			t.Fatal(err)
		}
		if got := states(c); got != "e/0 serving 3, e/1 serving 3" {
			t.Errorf("switched: %s", got)
		}
		// The second to be told fetches from the first, and from the origin if that fails.
		var parents []string
		for _, s := range []*stage{a, b} {
			var urls []string
			for _, p := range s.told[0].Parents {
				urls = append(urls, p.URL)
			}
			parents = append(parents, strings.Join(urls, "+"))
		}
		slices.Sort(parents)
		if want := []string{"/t", "http://127.0.0.1:1/t+/t"}; !slices.Equal(parents, want) {
			t.Errorf("parents %v, want %v", parents, want)
		}
		// Loading what is held already tells nobody anything.
		if err := c.Load(context.Background(), "e", 4); err != nil {
			t.Fatal(err)
		}
		told := len(a.told)
		if err := c.Load(context.Background(), "e", 4); err != nil || len(a.told) != told {
			t.Errorf("a second load: %v, %d commands", err, len(a.told)-told)
		}
	})
}

func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
		failing := protocol.ReceiveLoad
		a := &stage{name: "a", engine: "e", number: 0}
		b := &stage{name: "b", engine: "e", number: 1, fail: func(r protocol.ReceiverReply) string {
			if r.Kind == failing {
				return "out of memory"
			}
			return ""
		}}
		stop := start(t, c, a, b)
		defer stop()
		err := c.Load(context.Background(), "e", 1)
		if err == nil || !strings.Contains(err.Error(), "stage 1 of engine e") || !strings.Contains(err.Error(), "out of memory") {
			t.Fatalf("a load that fails: %v", err)
		}
		if got := states(c); got != "e/0 serving /, e/1 quarantined /" {
			t.Errorf("after a failed load: %s", got)
		}
		failing = protocol.ReceiveSwitch
		if err := c.Load(context.Background(), "e", 1); err != nil {
			t.Fatal(err)
		}
		if last := b.told[len(b.told)-1]; !last.Reload {
			t.Error("the load after a quarantine trusts what is there")
		}
		if err := c.Switch(context.Background(), "e", 1); err == nil || !strings.Contains(err.Error(), "stage 1 of engine e") {
			t.Fatalf("a switch that fails: %v", err)
		}
		// The other stage did switch: what the engine serves is unknown as a whole.
		if got := states(c); got != "e/0 quarantined /, e/1 quarantined /" {
			t.Errorf("after a failed switch: %s", got)
		}
		failing = ""
		for _, step := range []func(context.Context, string, loop.Version) error{c.Load, c.Switch} {
			if err := step(context.Background(), "e", 2); err != nil {
				t.Fatal(err)
			}
		}
		if got := states(c); got != "e/0 serving 2, e/1 serving 2" {
			t.Errorf("rejoined: %s", got)
		}
		for _, s := range []*stage{a, b} {
			if load := s.told[len(s.told)-2]; !load.Reload || load.Kind != protocol.ReceiveLoad {
				t.Errorf("%s rejoined by %+v, want a full reload", s.name, load)
			}
		}
	})
}

// A receiver's words for a failure end in logs and in the status: their beginning is kept.
func TestWordsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
		long := strings.Repeat("x", 1<<20)
		stop := start(t, c, &stage{name: "a", engine: "e", fail: func(protocol.ReceiverReply) string { return long }})
		defer stop()
		if err := c.Load(context.Background(), "e", 1); err == nil || len(err.Error()) > 2<<10 {
			t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
		}
	})
}

// A receiver that was restarted has lost what its stage served, whatever it held on disk.
func TestRestartedStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
		a := &stage{name: "a", engine: "e"}
		stop := start(t, c, a)
		if got := c.Unsound(); !slices.Equal(got, []string{"e"}) {
			t.Errorf("an engine with a stage that serves nothing yet: %v is unsound", got)
		}
		for _, step := range []func(context.Context, string, loop.Version) error{c.Load, c.Switch} {
			if err := step(context.Background(), "e", 2); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.Unsound(); len(got) != 0 {
			t.Errorf("%v is unsound, and serves", got)
		}
		stop()
		stop = start(t, c, &stage{name: "a", engine: "e", instance: "second"})
		defer stop()
		if got := states(c); got != "e/0 quarantined /" || !slices.Equal(c.Unsound(), []string{"e"}) {
			t.Errorf("after a restart: %s, unsound %v", got, c.Unsound())
		}
	})
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t", Silence: 30 * time.Second})
		a := &stage{name: "a", engine: "e", number: 0}
		stop := start(t, c, a)
		if err := c.Load(context.Background(), "e", 1); err != nil {
			t.Fatal(err)
		}
		stop()
		began := time.Now()
		err := c.Load(context.Background(), "e", 2)
		if err == nil || !strings.Contains(err.Error(), "last heard of") {
			t.Fatalf("a silent stage: %v", err)
		}
		if waited := time.Since(began); waited < 29*time.Second || waited > 35*time.Second {
			t.Errorf("gave up after %v, want about the silence of 30 s", waited)
		}
		if got := states(c); got != "e/0 lost /" {
			t.Errorf("silent: %s", got)
		}
		// Another process takes the stage over, and one that is served by a live process is refused.
		other := &stage{name: "b", engine: "e", number: 0}
		stop = start(t, c, other)
		defer stop()
		if err := c.Load(context.Background(), "e", 2); err != nil {
			t.Fatal(err)
		}
		var refused *protocol.Refusal
		_, err = c.Next(context.Background(), "a", protocol.ReceiverRequest{Engine: "e"})
		if !errors.As(err, &refused) || refused.Code != protocol.CodeConflict || !strings.Contains(refused.Message, "receiver b already") {
			t.Errorf("two receivers of one stage: %v", err)
		}
	})
}

// A stage that joins while its engine loads or switches is not waited for in vain: it loads too, and what
// is switched without it fails.
func TestStageJoinsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
		slowly := func(protocol.ReceiverReply) string { time.Sleep(10 * time.Second); return "" }
		stop := start(t, c, &stage{name: "a", engine: "e", number: 0, fail: slowly})
		defer stop()
		for i, step := range []struct {
			do   func(context.Context, string, loop.Version) error
			want string
		}{{c.Load, ""}, {c.Switch, "stage 2 of engine e (receiver 2): it joined meanwhile"}} {
			ended := make(chan error)
			go func() { ended <- step.do(ctx, "e", 3) }()
			synctest.Wait()
			number := i + 1
			stop := start(t, c, &stage{name: string(rune('0' + number)), engine: "e", number: number})
			defer stop()
			if err := <-ended; step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
				t.Errorf("step %d: %v, want %q", i, err, step.want)
			}
		}
		if got := c.Unsound(); !slices.Equal(got, []string{"e"}) {
			t.Errorf("unsound: %v", got)
		}
		time.Sleep(time.Minute) // until the slow one has done what it was told
	})
}

// A load that goes on when its engine was lost, and is told of another version, ends: it would have the stage give that up again.
func TestLaterLoadEndsEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
		a := &stage{name: "a", engine: "e", fail: func(command protocol.ReceiverReply) string {
			if command.Version == 1 { // it cannot be reached, and then it is not there any more
				time.Sleep(10 * time.Second)
				return "version 1 is not here"
			}
			return ""
		}}
		stop := start(t, c, a)
		defer stop()
		earlier, later := make(chan error, 1), make(chan error, 1)
		go func() { earlier <- c.Load(t.Context(), "e", 1) }()
		synctest.Wait()
		go func() { later <- c.Load(t.Context(), "e", 3) }()
		synctest.Wait()
		select {
		case err := <-earlier:
			if err == nil || !strings.Contains(err.Error(), "told of another version meanwhile") {
				t.Errorf("the earlier load ends with %v", err)
			}
		default:
			t.Error("the earlier load goes on")
		}
		if err := <-later; err != nil {
			t.Errorf("the later load: %v", err)
		}
		if err := c.Switch(t.Context(), "e", 3); err != nil {
			t.Error(err)
		}
		var told []string
		for _, command := range a.told {
			told = append(told, fmt.Sprint(command.Kind, " ", command.Version))
		}
		if got, want := strings.Join(told, ", "), "load 1, load 3, switch 3"; got != want {
			t.Errorf("the stage was told to %s, want %s", got, want)
		}
	})
}

// What a stage held before it was told of something else counts as held no more, and it is told to switch to nothing that it lacks.
func TestHeldBeforeCountsNoMore(t *testing.T) {
	slowly := func(protocol.ReceiverReply) string { time.Sleep(10 * time.Second); return "" }
	for _, c := range []struct {
		name  string
		begin func(*transfer.Coordinator, context.Context, string, loop.Version) error // goes on when version 3 is to be served
		of    loop.Version
		loads bool // version 3, once more
		want  string
	}{
		{"the version of a switch that goes on", (*transfer.Coordinator).Switch, 3, true, "load 3, switch 3, load 3, switch 3"},
		{"the version before a load that goes on", (*transfer.Coordinator).Load, 4, true, "load 3, load 4, load 3, switch 3"},
		{"a switch to the version before a load that goes on", (*transfer.Coordinator).Load, 4, false, "load 3, load 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coordinator := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
				a := &stage{name: "a", engine: "e", fail: slowly}
				stop := start(t, coordinator, a)
				defer stop()
				if err := coordinator.Load(t.Context(), "e", 3); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- c.begin(coordinator, t.Context(), "e", c.of) }()
				synctest.Wait()
				if c.loads {
					if err := coordinator.Load(t.Context(), "e", 3); err != nil {
						t.Error(err)
					}
				}
				if err := coordinator.Switch(t.Context(), "e", 3); c.loads != (err == nil) {
					t.Errorf("the switch: %v", err)
				}
				<-ended
				time.Sleep(time.Minute)
				var told []string
				for _, command := range a.told {
					told = append(told, fmt.Sprint(command.Kind, " ", command.Version))
				}
				if got := strings.Join(told, ", "); got != c.want {
					t.Errorf("the stage was told to %s, want %s", got, c.want)
				}
			})
		})
	}
}

// A receiver that comes during the load of its engine is told nothing before the version is on offer in its form.
func TestNothingIsLoadedThatIsNotOnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offers := map[string]string{}
		c := transfer.NewCoordinator(transfer.Options{Origin: "/t", Digest: func(_ loop.Version, form string) string { return offers[form] }})
		if err := c.Load(t.Context(), "e", 3); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := &stage{name: "a", engine: "e", address: "http://127.0.0.1:7071/t", instance: "1"}
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx, c) }()
		synctest.Wait()
		if err := c.Load(t.Context(), "e", 3); !errors.Is(err, transfer.ErrNotOffered) || len(s.told) != 0 {
			t.Errorf("%v, and the receiver was told %+v", err, s.told)
		}
		offers[""] = "sha256:3"
		if err := c.Load(t.Context(), "e", 3); err != nil || len(s.told) != 1 || s.told[0].Offer != "sha256:3" {
			t.Errorf("%v, and the receiver was told %+v", err, s.told)
		}
		cancel()
		<-ended
	})
}
