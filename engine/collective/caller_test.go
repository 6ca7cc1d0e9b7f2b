package collective

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/api/protocol"
)

// caller is who calls over the API with a token.
func caller(role, token string) protocol.Caller {
	return protocol.Caller{Peer: netip.MustParseAddr("10.0.0.3"), Role: role, Token: token}
}

// joined is how a member's call ends that does not wait for others.
func joined(r *Rendezvous, name string, req protocol.RendezvousRequest) (protocol.Code, string) {
	ctx, end := context.WithCancel(context.Background())
	end()
	req.Backend, req.WaitS = "gloo", 60
	if req.Role == roleTrainer {
		req.Address, req.Engines = "10.0.0.7:29500", 1
	}
	_, err := r.Join(ctx, name, req)
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		return refusal.Code, refusal.Message
	}
	return "", ""
}

// A member's role is that of its token, whatever it says.
func TestRolesComeFromTokens(t *testing.T) {
	for _, c := range []struct {
		token, role, name string
		want              protocol.Code
	}{
		{"engine", roleEngine, "weights", ""}, {"trainer", roleTrainer, "weights", ""},
		{"admin", roleEngine, "weights", ""}, {"admin", roleTrainer, "weights", ""},
		{"", roleEngine, "weights", ""}, {"", roleTrainer, "weights", ""},
		{"engine", roleTrainer, "weights", protocol.CodeForbidden}, {"trainer", roleEngine, "weights", protocol.CodeForbidden},
		{"engine", roleEngine, "broadcast-engine-0-abc", protocol.CodeForbidden}, {"", roleEngine, "broadcast-engine-0-abc", protocol.CodeForbidden},
		{"trainer", roleTrainer, "broadcast-engine-0-abc", ""},
	} {
		r := NewRendezvous(RendezvousOptions{})
		code, message := joined(r, c.name, protocol.RendezvousRequest{Member: "m", Role: c.role, Caller: caller(c.token, "t")})
		if code != c.want || len(r.rounds) != 0 {
			t.Errorf("a token of role %q joins %s as %s: %q %s, want %q; %d collectives are left", c.token, c.name, c.role, code, message, c.want, len(r.rounds))
		}
	}
}

// An engine's token can wait in so many collectives, and all engines together leave room for others.
func TestInventedCollectives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRendezvous(RendezvousOptions{})
		defer synctest.Wait()
		defer r.Close()
		wait := func(token string, i int) {
			go func() {
				_, _ = r.Join(context.Background(), fmt.Sprintf("%s-%d", token, i), protocol.RendezvousRequest{Member: "m", Role: roleEngine, Backend: "gloo", WaitS: 60, Caller: caller("engine", token)})
			}()
		}
		for i := range tokenMeetingsMax {
			wait("first", i)
		}
		synctest.Wait()
		engine := func(token, name string) (protocol.Code, string) {
			return joined(r, name, protocol.RendezvousRequest{Member: "n", Role: roleEngine, Caller: caller("engine", token)})
		}
		if code, message := engine("first", "one-more"); code != protocol.CodeBusy || !strings.Contains(message, "64 collectives wait that this token has begun") {
			t.Errorf("one more of the same token: %q %s", code, message)
		}
		if code, message := engine("first", "first-0"); code != "" {
			t.Errorf("one that is there already: %q %s", code, message)
		}
		if code, message := engine("second", "other"); code != "" {
			t.Errorf("another token: %q %s", code, message)
		}
		for token := 1; token < engineMeetingsMax/tokenMeetingsMax; token++ {
			for i := range tokenMeetingsMax {
				wait(fmt.Sprintf("token-%d", token), i)
			}
		}
		synctest.Wait()
		if code, message := engine("last", "other"); code != protocol.CodeBusy || !strings.Contains(message, "2048 collectives wait that engines have begun") {
			t.Errorf("one more of all: %q %s", code, message)
		}
		if code, message := joined(r, "real", protocol.RendezvousRequest{Member: "t", Role: roleTrainer, Caller: caller("trainer", "trainer")}); code != "" {
			t.Errorf("the trainer: %q %s", code, message)
		}
		if code, message := joined(r, "broadcast-engine-0-abc", protocol.RendezvousRequest{Member: "engine-0", Role: roleEngine}); code != "" {
			t.Errorf("the control plane for its engine: %q %s", code, message)
		}
	})
}

// A member's place is not for another token.
func TestMembersKeepTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRendezvous(RendezvousOptions{})
		ctx, leave := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			_, err := r.Join(ctx, "weights", protocol.RendezvousRequest{Member: "m", Role: roleEngine, Backend: "gloo", WaitS: 60, Caller: caller("engine", "its own")})
			ended <- err
		}()
		synctest.Wait()
		if code, message := joined(r, "weights", protocol.RendezvousRequest{Member: "m", Role: roleEngine, Caller: caller("engine", "another")}); code != protocol.CodeConflict {
			t.Errorf("another token took the place: %q %s", code, message)
		}
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
	})
}
