package plane

import (
	"errors"
	"maps"
	"net"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// measuring is an engine that measures itself in every way that the port knows.
type measuring struct{ port.Engine }

func (measuring) SetTrainerBusy(bool)                  {}
func (measuring) TakeDecodeTimes() []trace.ServiceCell { return make([]trace.ServiceCell, 3) }
func (measuring) TakePace() port.Pace                  { return port.Pace{Steps: 5} }

// An engine that has stages elsewhere still says what it measures; one that measures nothing does not claim to.
func TestStagedEnginesKeepWhatTheyMeasure(t *testing.T) {
	staged := new(Plane).staged(measuring{})
	if timed, ok := port.As[port.Timed](staged); !ok || len(timed.TakeDecodeTimes()) != 3 {
		t.Errorf("decode times are hidden")
	}
	if paced, ok := port.As[port.Paced](staged); !ok || paced.TakePace().Steps != 5 {
		t.Errorf("the pace is hidden")
	}
	if _, ok := port.As[port.Timed](new(Plane).staged(struct{ port.Engine }{})); ok {
		t.Error("an engine that measures nothing claims to")
	}
}

// Receivers belong to the engines that the document gives stages, and to no others.
func TestStagesOfEngines(t *testing.T) {
	p := &Plane{Record: &record.Record{Parts: &parts.Parts{Cfg: config.Config{Engines: []config.Engine{{Name: "disk"}, {Name: "far", Stages: 2}}}}}}
	if got := p.stagesOf(); !maps.Equal(got, map[string]int{"disk": 0, "far": 2}) {
		t.Errorf("stages are %v", got)
	}
}

// A server is gone whose address refuses, or whose name is known to be none. A resolver that fails says nothing of it.
func TestGone(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}:                                 true,
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}: true,
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving"}}:             false,
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}}:   false,
		errors.New("500 Internal Server Error"):                                             false,
	} {
		if got := gone(err); got != want {
			t.Errorf("%v: gone is %v", err, got)
		}
	}
}
