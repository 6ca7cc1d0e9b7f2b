package replay

import (
	"errors"
	"fmt"
	"io"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
)

// ErrIncomplete is wrapped by the error of a trace without its last line.
var ErrIncomplete = errors.New("the trace does not end with its end note")

// player plays a whole trace with the loop of its header.
type player struct {
	*trace.Player
	header trace.Header
	reader *trace.Reader
	loop   *loop.Loop
}

func newPlayer(src io.Reader) (*player, error) {
	reader, err := trace.NewReader(src)
	if err != nil {
		return nil, err
	}
	l, err := loop.New(reader.Header.Loop)
	if err != nil {
		return nil, &trace.Error{Line: 1, Err: fmt.Errorf("the header holds no rules a loop can run by: %w", err)}
	}
	return &player{trace.NewPlayer(reader, l), reader.Header, reader, l}, nil
}

// Beside makes what observes a run under these rules, whose measured window begins at a version,
// beside its recorder.
type Beside func(rules loop.Config, warmup loop.Version) metrics.Beside

// measured is what an event of the trace says beside the loop's, and the queue after it.
func (p *player) measured(ev *trace.Event) metrics.Measured {
	return metrics.Measured{QueueGroups: p.loop.QueueGroups(), VersionTokens: ev.VersionTokens, EnvironmentNS: ev.EnvironmentNS,
		Spans: ev.Spans, Resumed: ev.Resumed, StateLag: ev.StateLag, Control: metrics.ControlOf(p.loop, ev.Kind)}
}
