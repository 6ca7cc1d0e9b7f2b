package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/headway-rl/headway/loop"
)

// fakeSender is a Sender whose broadcasts reach fake servers: both sides of one wait for each other.
type fakeSender struct {
	mu     sync.Mutex
	groups map[string]*fakeGroup
	met    int
	// digests and tensors by version where they are not the usual; lost: no version can be held.
	digests map[loop.Version]string
	tensors map[loop.Version][]Tensor
	lost    error
	// away: there is no sender, so that Hold waits. mute: it joins and never sends. fails: its sends fail.
	away, mute bool
	fails      error
	// absences is how many meetings the sender does not come to.
	absences int
}

type fakeGroup struct {
	sent   chan loop.Version
	broken chan struct{}
	once   sync.Once
}

func (g *fakeGroup) end() { g.once.Do(func() { close(g.broken) }) }

func newFakeSender() *fakeSender {
	return &fakeSender{groups: map[string]*fakeGroup{}, digests: map[loop.Version]string{}, tensors: map[loop.Version][]Tensor{}}
}

func (s *fakeSender) Hold(ctx context.Context, _ string, version loop.Version) (Held, error) {
	s.mu.Lock()
	away, held := s.away, Held{Tensors: []Tensor{{Name: "w", DType: "float32", Shape: []int64{2}}}, Digest: fmt.Sprint(version)}
	if d, ok := s.digests[version]; ok {
		held.Digest = d
	}
	if other, ok := s.tensors[version]; ok {
		held.Tensors = other
	}
	err := s.lost
	s.mu.Unlock()
	if away {
		<-ctx.Done()
		return Held{}, ctx.Err()
	}
	return held, err
}

func (s *fakeSender) Meet(ctx context.Context, engine string, ranks int, join func(context.Context, Group) error) (Group, error) {
	s.mu.Lock()
	s.met++
	g := Group{Name: fmt.Sprintf("%s-%d", engine, s.met), Address: "h", Port: 1, RankOffset: 1, WorldSize: 1 + ranks, Backend: "gloo"}
	s.absences--
	absent := s.absences >= 0
	if !absent {
		s.groups[g.Name] = &fakeGroup{sent: make(chan loop.Version), broken: make(chan struct{})}
	}
	s.mu.Unlock()
	if err := join(ctx, g); err != nil || !absent {
		return g, err
	}
	return Group{}, errors.New("the sender was lost")
}

func (s *fakeSender) group(name string) *fakeGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[name]
}

func (s *fakeSender) Stands(_ string, g Group) bool { return s.group(g.Name) != nil }

func (s *fakeSender) Send(ctx context.Context, engine string, g Group, version loop.Version) error {
	s.mu.Lock()
	fails, mute := s.fails, s.mute
	s.mu.Unlock()
	group := s.group(g.Name)
	switch {
	case group == nil:
		return errors.New("there is no such group")
	case fails != nil:
		s.Part(engine, g)
		return fails
	case mute:
		<-ctx.Done()
		s.Part(engine, g)
		return ctx.Err()
	}
	select {
	case group.sent <- version:
		return nil
	case <-ctx.Done():
		s.Part(engine, g)
		return ctx.Err()
	}
}

func (s *fakeSender) Part(_ string, g Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if group := s.groups[g.Name]; group != nil {
		group.end()
		delete(s.groups, g.Name)
	}
}

// restart is a sender's process that ends and comes again: no group stands.
func (s *fakeSender) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, group := range s.groups {
		group.end()
		delete(s.groups, name)
	}
}

func (f *fakeServer) join(r *http.Request) string {
	var g Group
	_ = json.NewDecoder(r.Body).Decode(&g)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.groups == nil {
		f.groups = map[string]bool{}
	}
	f.groups[g.Name] = true
	return "{}"
}

func (f *fakeServer) part(r *http.Request) string {
	var g Group
	_ = json.NewDecoder(r.Body).Decode(&g)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.groups[g.Name] {
		return "!400 it is in no such group"
	}
	delete(f.groups, g.Name)
	return "{}"
}

// receive waits for what is broadcast in a group, and says what went wrong.
func (f *fakeServer) receive(ctx context.Context, name string) (loop.Version, string) {
	f.mu.Lock()
	in := f.groups[name]
	f.mu.Unlock()
	group := f.sender.group(name)
	if !in || group == nil {
		return 0, "it is in no such group"
	}
	select {
	case v := <-group.sent:
		return v, ""
	case <-group.broken:
		return 0, "the broadcast broke off"
	case <-ctx.Done():
		return 0, "nobody waits for it"
	}
}

// fakeJoiner is a fakeDialect whose server takes weights in a collective.
type fakeJoiner struct{ fakeDialect }

func (fakeJoiner) Join(ctx context.Context, s *Server, g Group, _ *Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/join", g, nil)
}

func (fakeJoiner) Part(ctx context.Context, s *Server, g Group, _ *Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/part", g, nil)
}
