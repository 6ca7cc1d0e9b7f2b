package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
)

// complainEvery is the least time between two lines about rollouts that failed in the same way, in nanoseconds: a
// worker that falls silent fails all that it holds at once, and again whatever it is given.
const complainEvery = int64(time.Minute)

// complaintsMax bounds how many ways of failing are told apart.
const complaintsMax = 256

// complaint is a way of failing: when it was said last, and how often it was not said since.
type complaint struct {
	at     int64
	unsaid int64
}

// complaints has the ways in which rollouts have failed, by their words without numbers.
type complaints map[string]*complaint

// say returns the line about a failure, false where the same was said a short while ago.
func (c complaints) say(text string, now int64) (string, bool) {
	way := sameWay(text)
	known := c[way]
	if known == nil {
		if len(c) >= complaintsMax {
			clear(c)
		}
		c[way] = &complaint{at: now}
		return text, true
	}
	if now-known.at < complainEvery {
		known.unsaid++
		return "", false
	}
	if known.unsaid > 0 {
		text += fmt.Sprintf(" (and %d more like it in the last %v)", known.unsaid, time.Duration(now-known.at).Round(time.Second))
	}
	*known = complaint{at: now}
	return text, true
}

// sameWay is what words of failures have in common that are alike: all but the numbers.
func sameWay(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// complain logs what an effect failed by; of rollouts and loads, which may fail by the hundred, once in a while, and of
// engines that are lost nothing, since sayLost does.
func (r *Runtime) complain(c *completion) {
	if c.event.Kind == loop.EngineLost {
		return // which is said with what follows from it
	}
	_, words, _ := strings.Cut(c.event.String(), " ") // without the run's time: the log has its own
	text := fmt.Sprintf("%s: %v", words, c.err)
	if c.event.Kind == loop.RolloutFailed || c.event.Kind == loop.SyncFailed {
		var due bool
		if text, due = r.complaints.say(text, c.event.Time); !due {
			return
		}
	}
	r.logf("%s", text)
}
