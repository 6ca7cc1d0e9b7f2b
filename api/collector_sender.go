package api

import (
	"slices"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// senderStates are the states of the process from which engines take their weights.
var senderStates = []string{"serving", "lost", "absent"}

// senderFigures say how engines whose weights are distributed get them; a run without any has none of them.
var senderFigures = []figure{
	of(senderOf, "headway_sender_state", "1 for the state of the sender of weights: serving, lost or absent; a run without engines that take their weights by a collective has no such series.", gauge, []string{"state"},
		func(s *protocol.Sender, emit func(float64, ...string)) {
			oneOf(senderStates, func(w string) bool { return w == s.State }, emit)
		}),
	single(senderOf, "headway_sender_silent_seconds", "Time since the sender's last word.", gauge, func(s *protocol.Sender) float64 { return s.SilentS }),
	of(senderOf, "headway_sender_engines", "Engines by what they have of the sender: a group that stands, one that they are joining, one that they have not joined in time (late), or nobody, whom they wait for.", gauge, []string{"state"},
		func(s *protocol.Sender, emit func(float64, ...string)) {
			late := 0
			for _, j := range s.Joining {
				if j.Late {
					late++
				}
			}
			emit(float64(len(s.Groups)), "standing")
			emit(float64(len(s.Joining)-late), "joining")
			emit(float64(late), "late")
			emit(float64(len(s.Waiting)), "waiting")
		}),
	of(senderOf, "headway_sender_version", "Newest version that the sender holds, and that an engine was sent since the control plane began; -1 for none.", gauge, []string{"of"},
		func(s *protocol.Sender, emit func(float64, ...string)) {
			held := loop.NoVersion
			if len(s.Holds) > 0 {
				held = slices.Max(s.Holds)
			}
			emit(float64(held), "held")
			emit(float64(s.SentVersion), "sent")
		}),
	of(senderOf, "headway_sender_sends_total", "Broadcasts of a version to an engine that have ended: sent, or failed on either side.", counter, []string{"end"},
		func(s *protocol.Sender, emit func(float64, ...string)) {
			emit(float64(s.Sends-s.FailedSends), "sent")
			emit(float64(s.FailedSends), "failed")
		}),
}

func senderOf(s protocol.Status) *protocol.Sender { return s.Sender }
