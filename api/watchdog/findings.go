package watchdog

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// facts is a view with what only time has shown.
type facts struct {
	View
	// stillS is how long there has been no progress, engineS how long each engine has been in its
	// state, holdS how long admission has been held.
	stillS  float64
	engineS []float64
	holdS   float64
	// lost are the rollouts that ended untrained meanwhile.
	lost ends
}

type ends struct{ filtered, discarded, evicted, pruned, failed int64 }

// suspect is a finding with how likely it is the cause, 0 to 100. The figures only order:
// what stops everything for certain comes before what stops it perhaps, and a cause before
// what follows from it.
type suspect struct {
	likely int
	protocol.Finding
}

// findingsMax bounds a list: a fleet that is gone wholly is one fact.
const findingsMax = 12

// follows are the codes of what a full disk makes wait by itself: nothing is to be done
// about them before there is room.
var follows = []string{"engine_paused", "hold", "straggler", "short_batch", "queue_full"}

// findings asks every rule and orders what they say.
func findings(f facts, o Options) []protocol.Finding {
	var suspects []suspect
	for _, rule := range []func(facts, Options) []suspect{disk, engines, sender, joining, trainer, workers, held, stragglers, batch, queue} {
		suspects = append(suspects, rule(f, o)...)
	}
	if f.Status.Disk.Full {
		suspects = slices.DeleteFunc(suspects, func(s suspect) bool { return slices.Contains(follows, s.Code) })
	}
	slices.SortStableFunc(suspects, func(a, b suspect) int { return b.likely - a.likely })
	findings := make([]protocol.Finding, 0, findingsMax)
	for _, s := range suspects[:min(len(suspects), findingsMax)] {
		findings = append(findings, s.Finding)
	}
	if len(findings) == 0 {
		findings = append(findings, protocol.Finding{Code: "unknown", Message: fmt.Sprintf(
			"nothing has brought the next train step nearer for %s, and nothing that is known stands still; under way: %s. Look at the engines' own logs; if rollouts take this long, raise watchdog.after_s",
			ago(f.stillS), several(f.Status.Ledger.InFlight, "rollout"))})
	}
	return findings
}

func found(likely int, code, subject, format string, args ...any) suspect {
	return suspect{likely, protocol.Finding{Code: code, Subject: subject, Message: fmt.Sprintf(format, args...)}}
}

func disk(f facts, _ Options) []suspect {
	d := f.Status.Disk
	if q := f.Status.Queue; d.Full && d.PayloadBytesMax > 0 && d.PayloadBytes >= d.PayloadBytesMax/10*9 {
		then := "It has room again when a batch is trained"
		if q.Groups < q.BatchGroups && f.Status.Trainer.Lease == 0 {
			then = fmt.Sprintf("The queue holds %s of the %d that a batch takes, so that no batch will make room", several(int64(q.Groups), "group"), q.BatchGroups)
		}
		return []suspect{found(100, "disk_full", "", "payloads of groups take %s of the %s that store.nats.payload_bytes_max allows, and rollouts wait. %s; raise it", bytes(d.PayloadBytes), bytes(d.PayloadBytesMax), then)}
	}
	if d.Full {
		return []suspect{found(100, "disk_full", "", "the store has no room: log and payloads hold %s of %s, weights %s. Nothing is lost and writes wait; free space on the disk (64 MiB of it always stay free), prune versions (headway weights prune), or raise store.nats.log_bytes_max and payload_bytes_max",
			bytes(d.LogBytes+d.PayloadBytes), bytes(d.BytesMax), bytes(d.WeightsBytes))}
	}
	return nil
}

// engines looks for those that are gone, and those that have been changing weights for long.
func engines(f facts, o Options) (out []suspect) {
	all := f.Status.Engines
	lost, paused := 0, 0
	for i, e := range all {
		if gone(e.State) {
			lost++
		} else if e.State != "serving" && f.engineS[i] >= o.AfterS {
			paused++
		}
	}
	for i, e := range all {
		since := ago(f.engineS[i])
		switch {
		case gone(e.State):
			why := ""
			if i < len(f.Engines) && f.Engines[i].Error != "" {
				why = ": " + f.Engines[i].Error
			}
			likely := 35
			if lost == len(all) {
				likely = 95
			}
			out = append(out, found(likely, "engine_lost", e.Name, "engine %s is %s for %s (%d of %d gone)%s. %s", e.Name, e.State, since, lost, len(all), why, lostHint(e.Cell)))
		case e.State != "serving" && f.engineS[i] >= o.AfterS:
			likely := 50
			if lost+paused == len(all) {
				likely = 72
			}
			if e.State == "loaded" {
				likely -= 20 // it waits for the others
			}
			out = append(out, found(likely, "engine_paused", e.Name, "engine %s has been %s for %s and serves version %d%s. %s", e.Name, e.State, since, e.Version, untilText(e), pausedHint(e.State)))
		case e.Version < 0 && f.engineS[i] >= o.AfterS:
			out = append(out, found(60, "engine_paused", e.Name, "engine %s has had no weights for %s: it still loads its first. %s", e.Name, since, pausedHint("loading")))
		}
	}
	return out
}

// sender looks for engines that have weights to take, and nobody to take them from.
func sender(f facts, _ Options) []suspect {
	s := f.Status.Sender
	if s == nil || len(s.Waiting) == 0 {
		return nil
	}
	likely := 73
	if len(s.Waiting) >= len(f.Status.Engines) {
		likely = 96
	}
	who := "no process is there that has the trainer's weights"
	if s.Name != "" {
		who = fmt.Sprintf("sender %s, which has the trainer's weights, was last heard of %s ago", s.Name, ago(s.SilentS))
	}
	return []suspect{found(likely, "no_sender", s.Name, "%s, and %d of %d engines wait for them, the first of them %s. Start that process with a Sender (headway.torch), and a token of role trainer", who, len(s.Waiting), len(f.Status.Engines), s.Waiting[0])}
}

func gone(state string) bool { return state == "lost" || state == "quarantined" }

func lostHint(cell string) string {
	if cell != "" {
		return fmt.Sprintf("It is of the cell %s, and joins when that speaks: headway cell %s starts it; look at its process and its log", cell, cell)
	}
	return "It is tried again by itself; look at its process and its log"
}

func pausedHint(state string) string {
	switch state {
	case "loading", "joining":
		return "Look at its road to the weights: the network, the disk, and whether the version is whole (headway weights verify)"
	case "loaded":
		return "It has the new weights and waits for the other engines to have them"
	case "emptying":
		return "It waits for its running rollouts to end before it changes weights: an in-flight sync would not"
	}
	return "Look at its log: a switch takes well under a second"
}

// trainer looks for one that is not there, or says nothing, while a batch is.
func trainer(f facts, o Options) []suspect {
	t := f.Status.Trainer
	waits := t.State == "offered" || f.Status.Queue.BatchGroups > 0 && f.Status.Queue.Groups >= f.Status.Queue.BatchGroups || f.BatchS > 0
	likely := 45
	if waits {
		likely = 90
	}
	switch {
	case t.State == "embedded":
		if f.BatchS > o.patience(f.View) {
			return []suspect{found(60, "silent_trainer", "", "the train step inside this process has run for %s. Look at its load: the machine may be short of processors or memory", ago(f.BatchS))}
		}
	case t.State == "service":
		if f.BatchS > o.patience(f.View) {
			return []suspect{found(60, "silent_trainer", "", "the train step at the service has run for %s. If its steps take this long, raise watchdog.after_s; else look whether the service answers, and what its queue is", ago(f.BatchS))}
		}
	case t.State == "training" && t.SilentS > o.LeaseS/2:
		return []suspect{found(92, "silent_trainer", t.Name, "trainer %s holds batch %d and has said nothing for %s. Its lease goes back after %s of silence and the batch is offered again; look at the trainer's process: out of memory, or a collective that hangs", t.Name, t.Lease, ago(t.SilentS), ago(o.LeaseS))}
	case t.State == "training":
		if f.BatchS > o.patience(f.View) {
			return []suspect{found(60, "silent_trainer", t.Name, "trainer %s renews its lease on batch %d and has published nothing for %s. If its steps take this long, raise watchdog.after_s; else look where it hangs", t.Name, t.Lease, ago(f.BatchS))}
		}
	case t.Name == "":
		return []suspect{found(likely, "no_trainer", "", "no trainer has ever connected%s. Start one: headway.connect(URL) in the Python client, with a token of role trainer", batchText(f))}
	case t.State == "absent" || waits && t.SilentS > o.AfterS:
		return []suspect{found(likely, "no_trainer", t.Name, "trainer %s was last heard of %s ago%s. Start it again: it goes on from the newest version", t.Name, ago(t.SilentS), batchText(f))}
	}
	return nil
}

func batchText(f facts) string {
	if f.BatchS > 0 {
		return ", and a batch has waited for " + ago(f.BatchS)
	}
	return ""
}

// workers looks for rollouts that nobody plays, or somebody who is gone.
func workers(f facts, o Options) (out []suspect) {
	w := f.Status.Workers
	if f.RemoteWorkers && w.Known == 0 && w.Offered > 0 {
		out = append(out, found(88, "no_worker", "", "%s waiting for an environment worker, and none has called within the last minute. Start workers with a token of role environment, and let them name an environment that is asked for", several(int64(w.Offered), "rollout")))
	}
	for _, name := range w.Silent {
		out = append(out, found(80, "lost_worker", name, "worker %s holds rollouts and has been silent for more than %s. They are offered again once their claims end; look at its process and its sandbox", name, ago(o.ClaimS/2)))
	}
	return out
}

func held(f facts, o Options) []suspect {
	if f.Holding && f.holdS >= o.AfterS {
		return []suspect{found(55, "hold", "", "admission has been held for %s until engines switch to newer weights. Look at the weight sync; queue.hold lets groups start earlier", ago(f.holdS))}
	}
	return nil
}

// stragglers looks for the oldest rollout of each engine.
func stragglers(f facts, o Options) (out []suspect) {
	if f.RemoteWorkers && f.Status.Workers.Claimed == 0 {
		return nil // the oldest ones wait for a worker: they have not begun
	}
	long := max(o.AfterS, usual*f.RolloutS)
	oldest := -1
	for i, e := range f.Engines {
		if e.Oldest != "" && e.OldestS >= long && (oldest < 0 || e.OldestS > f.Engines[oldest].OldestS) {
			oldest = i
		}
	}
	if oldest < 0 {
		return nil
	}
	e, at := f.Engines[oldest], ""
	if oldest < len(f.Status.Engines) {
		at = " at engine " + f.Status.Engines[oldest].Name
	}
	than := ""
	if f.RolloutS > 0 {
		than = fmt.Sprintf(", where %s is usual", ago(f.RolloutS))
	}
	likely := 52
	if f.Status.Ledger.InFlight <= int64(max(f.Status.Queue.BatchGroups, 1)) {
		likely = 65 // everything else is done
	}
	group, _, _ := strings.Cut(e.Oldest, "-")
	return []suspect{found(likely, "straggler", group, "rollout %s of group %s has run for %s%s%s, and its group waits for it. Look at its tools and its response's length; the environment's limits of tokens and of time bound both", e.Oldest, group, ago(e.OldestS), at, than)}
}

// batch looks for one that will never be full.
func batch(f facts, _ Options) (out []suspect) {
	s := &f.Status
	short := s.Queue.BatchGroups - s.Queue.Groups
	if short <= 0 || s.Trainer.Lease != 0 || f.BatchS > 0 {
		return nil
	}
	if s.Ledger.InFlight == 0 && s.Workers.Offered == 0 && s.Workers.Claimed == 0 {
		if slices.ContainsFunc(s.Engines, func(e protocol.Engine) bool { return e.Version < 0 }) {
			return nil // rollouts start when it has its weights
		}
		why := "Nothing starts any more"
		if s.Queue.CapacityGroups > 0 && s.Queue.CapacityGroups < s.Queue.BatchGroups {
			why = "The queue takes fewer than a batch: raise queue.factor"
		} else if f.Holding {
			why = "Admission is held"
		}
		out = append(out, found(75, "short_batch", "", "the queue holds %s, a batch takes %d, and no rollout is under way: it is %d short for ever. %s; headway doctor says which settings collide", several(int64(s.Queue.Groups), "group"), s.Queue.BatchGroups, short, why))
	}
	if n, most, hint := f.lost.most(); n > 0 {
		out = append(out, found(58, "short_batch", "", "the queue holds %s and a batch takes %d; meanwhile %s ended untrained: %s. %s", several(int64(s.Queue.Groups), "group"), s.Queue.BatchGroups, several(n, "rollout"), most, hint))
	}
	return out
}

// most is the commonest way in which rollouts ended untrained.
func (e ends) most() (n int64, word, hint string) {
	for _, c := range []struct {
		n          int64
		word, hint string
	}{
		{e.filtered, "filtered, because their groups teach nothing", "Choose tasks that the policy sometimes solves, or widen filter"},
		{e.failed, "failed", "The log has their errors"},
		{e.discarded, "past the staleness budget", "Raise queue.max_staleness, or sync faster"},
		{e.evicted, "dropped by a full queue", "The trainer takes too few: look at its steps"},
		{e.pruned, "pruned", "Raise rollout.prune.tokens"},
	} {
		if c.n > n {
			n, word, hint = c.n, c.word, c.hint
		}
	}
	return n, word, hint
}

// queue says that it is full, which follows from something else unless nobody holds a batch.
func queue(f facts, _ Options) []suspect {
	q := f.Status.Queue
	if q.CapacityGroups == 0 || q.Groups < q.CapacityGroups {
		return nil
	}
	return []suspect{found(40, "queue_full", "", "the queue is full with %s (%d more held back), and nobody trains on them. It is the trainer's turn", several(int64(q.Groups), "group"), q.HeldGroups)}
}

// ago writes seconds for people.
func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if seconds < 10 {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// several writes a number of things for people, which are called by the noun of one.
func several(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// bytes writes bytes for people.
func bytes(n int64) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", math.Round(value*10)/10, [...]string{"B", "KiB", "MiB", "GiB", "TiB"}[unit])
}

// RolloutName is how a rollout attempt is named in findings and claims: g12-s3-a1.
func RolloutName(group loop.GroupID, sample, attempt int32) string {
	return fmt.Sprintf("g%d-s%d-a%d", group, sample, attempt)
}
