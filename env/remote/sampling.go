package remote

import (
	"cmp"
	"fmt"
	"math"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// Rules for a client's own sampling parameters where they differ from the run's.
const (
	// SamplingOverride takes the run's and says so; it is what an empty Options.ClientSampling stands for.
	SamplingOverride = "override"
	// SamplingRefuse answers with an error.
	SamplingRefuse = "refuse"
	// SamplingAllow takes the client's.
	SamplingAllow = "allow"
)

// cleanSampling writes out what 0 stands for, so that settings can be compared.
func cleanSampling(s *port.Sampling) port.Sampling {
	if s == nil {
		return port.Sampling{Temperature: 1, TopP: 1}
	}
	out := *s
	out.TopP = cmp.Or(out.TopP, 1)
	return out
}

// checkSampling refuses what no engine could be asked for.
func (e *Dispatcher) checkSampling(c *protocol.Sampling) error {
	for _, p := range []struct {
		name     string
		value    *float64
		max      float64
		excluded bool // 0 is
	}{{"temperature", c.Temperature, math.MaxFloat32, false}, {"top_p", c.TopP, 1, true}, {"min_p", c.MinP, 1, false}} {
		switch {
		case p.value == nil:
		case !(*p.value >= 0 && *p.value <= p.max) || p.excluded && *p.value == 0:
			return protocol.Refuse(protocol.CodeInvalid, "%s is %g: want a number %s", p.name, *p.value, rangeText(p.max, p.excluded)).With("field", p.name)
		}
	}
	if c.TopK != nil && *c.TopK < -1 {
		return protocol.Refuse(protocol.CodeInvalid, "top_k is %d: want a number of tokens, or 0 or -1 for all", *c.TopK).With("field", "top_k")
	}
	for i, text := range c.Stop {
		if text == "" {
			return protocol.Refuse(protocol.CodeInvalid, "stop[%d] is empty: want a text that ends the response, or leave it out", i).With("index", i).With("field", "stop")
		}
	}
	if e.opt.PolicyOnly && len(c.Stop) > 0 {
		return protocol.Refuse(protocol.CodeInvalid, "stop: the engines of this run end a response at token ids alone: name them in stop_token_ids, or leave stop out").With("field", "stop")
	}
	return e.checkTokens("stop_token_ids", c.StopTokens)
}

func rangeText(highest float64, excluded bool) string {
	low := "from 0"
	if excluded {
		low = "above 0"
	}
	if highest > 1 {
		return low
	}
	return fmt.Sprintf("%s to %g", low, highest)
}

// samplingOf is how a turn's tokens are drawn, nil for the policy as it is, and which of the
// client's parameters the run's took the place of. What ends a response is the client's.
func (e *Dispatcher) samplingOf(c *protocol.Sampling) (*port.Sampling, []string, error) {
	if err := e.checkSampling(c); err != nil {
		return nil, nil, err
	}
	run := cleanSampling(e.opt.Sampling)
	out := run
	var differ []string
	wish := func(name string, value *float64, field *float64) {
		if value != nil && *value != *field {
			differ, *field = append(differ, name), *value
		}
	}
	wish("temperature", c.Temperature, &out.Temperature)
	wish("top_p", c.TopP, &out.TopP)
	if c.TopK != nil && max(*c.TopK, 0) != out.TopK {
		differ, out.TopK = append(differ, "top_k"), max(*c.TopK, 0)
	}
	wish("min_p", c.MinP, &out.MinP)
	switch {
	case e.opt.ClientSampling == SamplingAllow && e.opt.PolicyOnly && len(differ) > 0:
		return nil, nil, protocol.Refuse(protocol.CodeInvalid, "%v: the engines of this run draw by the policy as it is, against gateway.client_sampling: leave them out", differ).With("parameters", differ).With("field", differ[0])
	case e.opt.ClientSampling == SamplingAllow:
		differ = nil
	case e.opt.ClientSampling == SamplingRefuse && len(differ) > 0:
		return nil, nil, protocol.Refuse(protocol.CodeInvalid, "%v: the run samples with temperature %g, top_p %g, top_k %d and min_p %g, and takes no other. Leave them out, or set gateway.client_sampling to override or allow",
			differ, run.Temperature, run.TopP, run.TopK, run.MinP).With("parameters", differ).With("field", differ[0])
	default:
		out = run
	}
	out.Stop, out.StopTokens = append(out.Stop[:len(out.Stop):len(out.Stop)], c.Stop...), append(out.StopTokens[:len(out.StopTokens):len(out.StopTokens)], c.StopTokens...)
	if out.Policy() && len(out.Stop)+len(out.StopTokens) == 0 {
		return nil, differ, nil
	}
	return &out, differ, nil
}
