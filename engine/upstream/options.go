package upstream

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// The treatment of keys and values that were computed under old weights (config.Engine.Cache).
const (
	CacheSalt  = "salt"
	CacheFlush = "flush"
	CacheKeep  = "keep"
	// cacheNone is what becomes of a cache that there is not.
	cacheNone = "none"
)

// Defaults of Options.
const (
	SilentDefault = 2 * time.Minute
	UpdateDefault = 12 * time.Minute
	QuietDefault  = 250 * time.Millisecond
)

// Options of an engine that is a server of its own. Time is the time package's: tests that turn
// the clock run in a bubble of testing/synctest, over a Server with a Dial of its own.
type Options struct {
	// Name in logs and status; Slots is how many responses it samples at once, at least 1.
	Name  string
	Slots int
	// Server is where it is, Dialect how it speaks.
	Server  *Server
	Dialect Dialect
	// Delivery of new weights; empty means DeliveryNone.
	Delivery Delivery
	// Views returns the directory of a version in the layout of Hugging Face, as this process sees it,
	// and makes it if need be. DeliveryDisk, DeliveryLora and DeliveryRestart need it. ServerPath returns where
	// the server sees a directory; nil where it sees the same.
	Views      func(ctx context.Context, version loop.Version) (dir string, err error)
	ServerPath func(dir string) string
	// Sender has the tensors of versions; needed on DeliveryDistributed.
	Sender Sender
	// Replaced says why another process may be in the place of this one, which changes no weights then. It may wait for an answer.
	// Nil is for one that stands alone.
	Replaced func(ctx context.Context) error
	// Groups remembers the groups that the server may be in beyond this process; nil for none.
	Groups CollectiveRegistry
	// Cache is what becomes of old keys and values: CacheSalt (also if empty), CacheFlush or CacheKeep.
	Cache string
	// Silent is how long a response may bring no token before the server is looked after, outside
	// switches. Update bounds an update of weights, Quiet is how long no token may arrive before
	// what was sampled before a pause counts as received. 0 means the default of each.
	Silent, Update, Quiet time.Duration
	// Sampling is how tokens are drawn where a request does not say; nil is the policy as it is.
	Sampling *port.Sampling
	// Vocabulary is the number of token ids that the run's model has; 0 takes the server's word.
	Vocabulary int
	// Ends are the ids that end a sequence. A response that breaks off right behind one is complete,
	// and so is one behind a token of Sampling.StopTokens. Nil where they are not known.
	Ends []int32
	// Traceparent is the W3C header that a rollout's calls carry, so that the server's own spans become
	// children of the rollout's. It is nil, or empty text, for none.
	Traceparent func(id port.RolloutID) string
	// LogPayloads lets the beginning of events that are not understood into errors, completions in them.
	LogPayloads bool
	// Logf is told news for people, by several goroutines; nil for none.
	Logf func(format string, args ...any)
}

// withDefaults returns a copy in which nothing is left open.
func (o Options) withDefaults() Options {
	o.Delivery = cmp.Or(o.Delivery, DeliveryNone)
	o.Cache = cmp.Or(o.Cache, CacheSalt)
	for _, d := range []struct {
		given    *time.Duration
		fallback time.Duration
	}{{&o.Silent, SilentDefault}, {&o.Update, UpdateDefault}, {&o.Quiet, QuietDefault}} {
		*d.given = cmp.Or(*d.given, d.fallback)
	}
	o.Sampling = cmp.Or(o.Sampling, &port.Sampling{Temperature: 1, TopP: 1})
	if o.ServerPath == nil {
		o.ServerPath = func(dir string) string { return dir }
	}
	if o.Groups == nil {
		o.Groups = noRegistry{}
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("engine %s: %w", o.Name, fmt.Errorf(format, args...))
	}
	_, restarts := o.Dialect.(Restarter)
	_, joins := o.Dialect.(Joiner)
	reads := o.Delivery == DeliveryDisk || o.Delivery == DeliveryLora || o.Delivery == DeliveryRestart
	switch {
	case o.Slots < 1:
		return fail("%d slots, want at least 1", o.Slots)
	case o.Server == nil || o.Dialect == nil:
		return fail("Server or Dialect is missing")
	case o.Delivery != "" && !reads && o.Delivery != DeliveryDistributed && o.Delivery != DeliveryNone:
		return fail("weights cannot go by %q, want disk, lora, distributed, restart or none", o.Delivery)
	case o.Delivery == DeliveryDistributed && !joins:
		return fail("a server of kind %s joins no collective from here", o.Dialect.Kind())
	case o.Delivery == DeliveryDistributed && o.Sender == nil:
		return fail("Sender is missing: weights go by %s, and nobody sends them", o.Delivery)
	case o.Delivery == DeliveryRestart && !restarts:
		return fail("a server of kind %s cannot be started again from here", o.Dialect.Kind())
	case reads && o.Views == nil:
		return fail("Views is missing: weights go by %s, and nobody says where they are", o.Delivery)
	case o.Cache != "" && o.Cache != CacheSalt && o.Cache != CacheFlush && o.Cache != CacheKeep:
		return fail("the cache cannot be treated by %q, want salt, flush or keep", o.Cache)
	case o.Silent < 0 || o.Update < 0 || o.Quiet < 0 || o.Vocabulary < 0:
		return fail("Silent, Update, Quiet or Vocabulary is negative")
	}
	return nil
}
