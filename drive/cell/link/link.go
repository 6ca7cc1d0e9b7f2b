package link

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// Wire carries words to the writer of a run, and the run's log to a cell.
type Wire interface {
	// Begin waits until the run has begun, and returns the log's header and its end as of now.
	Begin(ctx context.Context) (trace.Header, trace.Position, error)
	// Incarnate gives this process the cell's next incarnation, above all that it was given before. Begin comes first.
	Incarnate(ctx context.Context) (int64, error)
	// Follow hands over the lines behind Begin's position as they are appended, whole ones, and whether an append ends with them.
	// It goes on through lost connections, until the context ends or take fails.
	Follow(ctx context.Context, take func(lines []byte, ends bool) error) error
	// Say sends a word, which may be lost. An error says that there is no connection.
	Say(word []byte) error
	// Listen has answers to words handed over, and every connection that is there again after it was lost. Any goroutine
	// calls back.
	Listen(answered func(answer []byte), back func())
}

const (
	// sayAtOnce is how many words are taken from the cell at a time.
	sayAtOnce = 64
	// silenceFirst and silenceMost are how long a cell waits for the log to show the first of its words before it says all of
	// them again, at first and at last.
	silenceFirst = 2 * time.Second
	silenceMost  = 30 * time.Second
)

// ErrEnded is what a cell ends with when its run has made all of its train steps.
var ErrEnded = errors.New("the run has made all of its train steps")

// Link is a cell in a process of its own.
type Link struct {
	wire  Wire
	cell  *cell.Cell
	hello cell.Hello
	share *cell.Share // nil for a cell without a part in evaluations
	log   *cell.Entries
	wake  chan struct{}
	// back has room for one: that there is a connection again.
	back   chan struct{}
	cancel context.CancelCauseFunc
	ctx    context.Context

	mu sync.Mutex
	// sent is the sequence up to which words were said, wanted is from where on the writer wanted them last.
	sent, wanted int64
}

// New returns the link of a cell that o describes, by Name, Engines and all else but Incarnation and Post, of a program called
// build. It waits until the run has begun, and takes the cell's next incarnation. All that runs ends with ctx.
func New(ctx context.Context, wire Wire, o cell.Options, build string) (*Link, error) {
	if o.Name == "" {
		return nil, errors.New("link: the cell has no name")
	}
	header, at, err := wire.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if o.Incarnation, err = wire.Incarnate(ctx); err != nil {
		return nil, err
	}
	l := &Link{wire: wire, log: cell.NewEntries(at, header), wake: make(chan struct{}, 1), back: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	var engines []cell.EngineHello
	for i, e := range o.Engines {
		if e != nil {
			engines = append(engines, cell.EngineHello{Engine: int32(i), Name: e.Name(), Slots: slotsOf(&o, i, e)})
		}
	}
	l.hello = cell.NewHello(build, header, o.Rules, engines)
	o.Post = l.post
	// A rollout whose end is said, and not yet in the log, may count all the same: nobody may be told that it does not.
	playing, ended := context.WithCancelCause(context.WithoutCancel(l.ctx))
	context.AfterFunc(l.ctx, func() {
		cause := context.Cause(l.ctx)
		if !errors.Is(cause, ErrEnded) { // behind which nothing counts
			cause = port.ErrEnded
		}
		ended(cause)
	})
	if l.cell, err = cell.New(playing, o); err != nil {
		l.cancel(nil)
		return nil, err
	}
	return l, nil
}

// slotsOf is how many slots of an engine the cell's document gives to the run.
func slotsOf(o *cell.Options, i int, e port.Engine) int {
	if i < len(o.Rules.EngineSlots) {
		return min(e.Slots(), o.Rules.EngineSlots[i])
	}
	return e.Slots()
}

// Plays has the cell ask for held-out prompts, for a share. It is called before Run.
func (l *Link) Plays(s *cell.Share) { l.share = s }

// Run has the cell say hello and follow the log. It ends with the run, with the context of New, when the writer refuses the cell,
// or when the cell cannot go on. The error says why. All of the cell has ended then.
func (l *Link) Run() error {
	defer l.cell.Wait()
	defer l.cancel(nil)
	l.wire.Listen(l.answered, func() { poke(l.back) })
	saying := make(chan struct{})
	go func() { defer close(saying); l.say() }()
	l.cell.Hello(l.hello)
	err := l.wire.Follow(l.ctx, l.follow)
	if l.ctx.Err() != nil {
		err = context.Cause(l.ctx)
	}
	l.cancel(err)
	<-saying
	return err
}

// follow takes lines of the log.
func (l *Link) follow(lines []byte, ends bool) error {
	entries, err := l.log.Add(lines, ends)
	for i := range entries {
		if err == nil {
			err = l.cell.Follow(&entries[i])
		}
		if entries[i].Event.Kind == loop.TrainStepEnded {
			l.share.Look() // the writer may evaluate the version
		}
		if err == nil && slices.ContainsFunc(entries[i].Actions, func(a loop.Action) bool { return a.Kind == loop.FinishRun && a.Reason == loop.ReasonSteps }) {
			err = ErrEnded
		}
	}
	return err
}

// post takes that the cell has an event to say, a new one or an earlier one once more.
func (l *Link) post(ev *cell.Event) {
	if ev.Fatal {
		l.cancel(errors.New(ev.Error))
		return
	}
	l.mu.Lock()
	l.sent = min(l.sent, ev.Origin.Sequence-1)
	l.mu.Unlock()
	poke(l.wake)
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is to look already
	}
}

// again has all said once more that the log does not show.
func (l *Link) again() {
	l.mu.Lock()
	l.sent, l.wanted = 0, 0
	l.mu.Unlock()
	poke(l.wake)
}

// answered takes a refusal, or a deal. Words from a sequence on are said again once, however many that came behind were refused for it:
// what is lost once more is found by the silence of the log.
func (l *Link) answered(text []byte) {
	var r reply
	switch err := json.Unmarshal(text, &r); {
	case err != nil, r.Want < 0: // of no writer
	case r.Deal != nil:
		if l.share != nil {
			l.share.Take(*r.Deal)
		}
	case r.Want == 0:
		l.cancel(&r.Refusal)
	default:
		l.mu.Lock()
		if r.Want != l.wanted {
			l.wanted, l.sent = r.Want, min(l.sent, r.Want-1)
		}
		l.mu.Unlock()
		poke(l.wake)
	}
}

// say sends what the cell says, until the context ends.
func (l *Link) say() {
	silence, pause, first := time.NewTimer(silenceFirst), silenceFirst, int64(0)
	defer silence.Stop()
	lease := time.NewTicker(cell.Lease / 3)
	defer lease.Stop()
	for {
		select {
		case <-lease.C:
			l.renew()
		case <-l.share.News():
			l.renew()
		case <-l.wake:
		case <-l.back: // the writer may be back later, and not hear what is said now
			l.again()
			pause = silenceFirst
			silence.Reset(pause)
		case <-silence.C:
			waits := int64(0)
			if unlogged := l.cell.Unlogged(0, 1); len(unlogged) > 0 {
				waits = unlogged[0].Origin.Sequence
			}
			if waits > 0 && waits == first {
				pause = min(2*pause, silenceMost)
				l.again()
			} else {
				pause = silenceFirst
			}
			first = waits
			silence.Reset(pause)
		case <-l.ctx.Done():
			return
		}
		l.sayUnsent()
	}
}

// renew renews the cell's lease.
func (l *Link) renew() {
	again := l.cell.Renewal(l.hello)
	if l.share != nil {
		ask := l.share.Ask()
		again.Ask = &ask
	}
	word, err := again.Word()
	if err != nil {
		l.cancel(err)
		return
	}
	_ = l.wire.Say(word) // without a connection the cell is silent
}

// sayUnsent says what has not been said, as long as there is a connection.
func (l *Link) sayUnsent() {
	for l.ctx.Err() == nil {
		l.mu.Lock()
		sent := l.sent
		l.mu.Unlock()
		unsent := l.cell.Unlogged(sent, sayAtOnce)
		for i := range unsent {
			word, err := unsent[i].Word()
			if err != nil {
				l.cancel(err)
				return
			}
			if l.wire.Say(word) != nil {
				return // all is said again with the next connection
			}
			if !l.passed(sent, unsent[i].Origin.Sequence) {
				break
			}
			sent = unsent[i].Origin.Sequence
		}
		if len(unsent) == 0 {
			return
		}
	}
}

// passed moves behind a word that was said, unless something before it is to be said again.
func (l *Link) passed(before, sequence int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent != before {
		return false
	}
	l.sent = sequence
	return true
}
