package upstream

import (
	"context"
	"net/http"
	"time"
)

// CollectiveRegistry remembers, beyond the life of this process, which groups servers may be in. A server knows
// its groups by name alone and says none of them. A forgotten group stays there until the server ends,
// and with NCCL keeps memory of its GPUs. It is safe for concurrent use.
type CollectiveRegistry interface {
	// Joining notes a group that an engine's server is about to join, before it is asked to.
	Joining(engine, group string)
	// Left notes that the server is not in it any more.
	Left(engine, group string)
	// Remembered are the groups that it was about to join and has not left, the oldest first.
	Remembered(engine string) []string
}

// noRegistry remembers nothing.
type noRegistry struct{}

func (noRegistry) Joining(string, string)     {}
func (noRegistry) Left(string, string)        {}
func (noRegistry) Remembered(string) []string { return nil }

// partRemembered has the server leave the groups that it was in with a process before this one, or did not
// leave when it was asked to; asked is one of which it was asked just now. A server that does not answer
// is asked again before its next group.
func (e *Engine) partRemembered(ctx context.Context, caps *Capabilities, asked string) {
	for _, name := range e.opt.Groups.Remembered(e.opt.Name) {
		if name != asked && !e.leaveGroup(ctx, partLimit, Group{Name: name}, caps) {
			return
		}
	}
}

// leaveGroup has the server leave a group, and reports whether it has answered: then it is in it no more, or
// for as long as it lives, as SGLang forgets a group's name before it leaves it.
func (e *Engine) leaveGroup(ctx context.Context, limit time.Duration, g Group, caps *Capabilities) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := e.opt.Dialect.(Joiner).Part(ctx, e.opt.Server, g, caps)
	if err != nil {
		e.opt.Logf("engine %s: it has not left the group %s: %v", e.opt.Name, g.Name, err)
	}
	answered := err == nil || StatusOf(err) == http.StatusBadRequest
	if answered {
		e.opt.Groups.Left(e.opt.Name, g.Name)
	}
	return answered
}
