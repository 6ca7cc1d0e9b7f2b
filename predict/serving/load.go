package serving

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"

	"github.com/headway-rl/headway/loop/workload/session"
)

// load is how calls come.
type load struct {
	// atOnce clients each send the next call when the one before has ended; 0 for calls at a rate.
	atOnce int
	// aWorker says that atOnce counts those of one worker that decodes.
	aWorker bool
	// rate is calls a second over seconds, as a Poisson process.
	rate, seconds float64
	// prefixes of prefixTokens are shared by questions prompts each; prefixes 0 for prompts that share nothing.
	prefixes, prefixTokens, questions int
}

var (
	atOncePattern = regexp.MustCompile(`(?i)(?:^|\D)(\d+) (?:at once|clients|users|in flight|a decode worker|concurrent)|concurrency (\d+)`)
	workerPattern = regexp.MustCompile(`(?i)a decode worker`)
	ratePattern   = regexp.MustCompile(`(?i)([\d.]+) requests/s(?: Poisson)? for ([\d.]+) s`)
	prefixPattern = regexp.MustCompile(`(?i)(\d+) prefixes of (\d+) tokens, (\d+) (?:prompts|questions)`)
)

// parseLoad reads a load as tables write it, such as "64 at once", "one at a time" or "15 requests/s Poisson for
// 20 s; 150 prefixes of 6000 tokens, 5 questions of 1200 each".
func parseLoad(text string) (load, error) {
	var l load
	if found := prefixPattern.FindStringSubmatch(text); found != nil {
		l.prefixes, l.prefixTokens, l.questions = number(found[1]), number(found[2]), number(found[3])
	}
	if found := ratePattern.FindStringSubmatch(text); found != nil {
		var errs [2]error
		l.rate, errs[0] = strconv.ParseFloat(found[1], 64)
		l.seconds, errs[1] = strconv.ParseFloat(found[2], 64)
		if errs[0] != nil || errs[1] != nil || l.rate <= 0 || l.seconds <= 0 || l.rate*l.seconds > 1e6 {
			return load{}, fmt.Errorf("load %q: expected a rate and a time above 0, and at most 1e6 calls", text)
		}
		return l, nil
	}
	if found := atOncePattern.FindStringSubmatch(text); found != nil {
		l.atOnce, l.aWorker = max(number(found[1]), number(found[2])), workerPattern.MatchString(text)
	} else if text == "one at a time" {
		l.atOnce = 1
	}
	if l.atOnce < 1 || l.atOnce > 1e5 {
		return load{}, fmt.Errorf("load %q: expected such as \"64 at once\", \"one at a time\" or \"45 requests/s for 120 s\"", text)
	}
	return l, nil
}

// The client's side, which no row tells. A call takes frontS from the client to the engine's queue and back: HTTP and
// scheduling. Each token of its prompt takes frontTokenS to be read and made from text: a round figure for the rows
// kv-8b-h800-2k, kv-8b-h800-32k, route-32b-precise-15 and route-32b-precise-30, of two models and two sources. Each of so many clients at once sends callsOfClient calls, the first ones together, as benchmarks
// do that send ten times as many calls as run at once. Lengths lie evenly within spread of their mean, so
// that clients fall out of step as they do in practice.
const (
	frontS        = 0.02
	frontTokenS   = 5e-6
	callsOfClient = 10
	spread        = 0.1
)

// front is the time of a call outside engines.
func front(input int) float64 { return frontS + frontTokenS*float64(input) }

// sessions are a load's calls, and when the calls begin that count.
func (l load) sessions(input, output, block int) ([]session.Session, float64) {
	random := rand.New(rand.NewPCG(25, 1))
	if l.atOnce > 0 {
		about := func(mean int) int { return max(int(math.Round(float64(mean)*(1+spread*(2*random.Float64()-1)))), 1) }
		all := make([]session.Session, callsOfClient*l.atOnce)
		for i := range all {
			all[i].Calls = []session.Call{{InputTokens: about(input), OutputTokens: about(output)}}
		}
		return all, 0
	}
	var all []session.Session
	order := random.Perm(max(l.prefixes*l.questions, 1))
	come := func(at, rate float64, count int) float64 {
		for range count {
			at += random.ExpFloat64() / rate
			c := session.Call{InputTokens: input, OutputTokens: output}
			if l.prefixes > 0 {
				c.Blocks = l.blocks(order[len(all)%len(order)], input, block)
			}
			all = append(all, session.Session{StartS: at, Calls: []session.Call{c}})
		}
		return at
	}
	from := 0.0
	if l.prefixes > 0 { // caches are warm: every prompt has come once, at half the rate
		from = come(0, l.rate/2, len(order)) + settleS
	}
	come(from, l.rate, int(math.Round(l.rate*l.seconds)))
	return all, from
}

// settleS lies between the calls that warm caches and those that count.
const settleS = 120

// blocks names a prompt's whole blocks: those of its prefix are shared.
func (l load) blocks(prompt, input, block int) []uint64 {
	names := make([]uint64, input/block)
	prefix := uint64(prompt / l.questions)
	for i := range names {
		if (i+1)*block <= l.prefixTokens {
			names[i] = prefix<<24 | uint64(i)
		} else {
			names[i] = 1<<60 | uint64(prompt)<<24 | uint64(i)
		}
	}
	return names
}
