package parts

import (
	"context"
	"errors"
	"fmt"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/tinker"
	"net/http"
	"strings"
	"testing"
)

// The base model is the one that is named, else the only one; what cannot be is said with what the service has.
func TestBaseModelOfAService(t *testing.T) {
	many := make([]string, 23)
	for i := range many {
		many[i] = fmt.Sprintf("base-%d", i)
	}
	for _, test := range []struct {
		named string
		bases []string
		want  string // of an answer, or of what is wrong
		fails bool
	}{
		{"", []string{"a"}, "a", false},
		{"b", []string{"a", "b"}, "b", false},
		{"b", nil, "b", false}, // which a service that lists none may have
		{"", []string{"a", "b"}, "is missing, and the service has 2 base models a, b", true},
		{"", nil, "is missing, and the service names no base model", true},
		{"c", many, `is no base model of the service: "c" base-0, base-1`, true},
		{"c", many, "base-19 and 3 more", true},
	} {
		base, problem, allowed := BaseOf(config.Engine{ServedModel: test.named}, test.bases)
		if test.fails != (problem != "") || test.fails != (base == "") || !strings.Contains(base+problem+" "+allowed, test.want) {
			t.Errorf("%q of %d: %q, %q, %q; want %q", test.named, len(test.bases), base, problem, allowed, test.want)
		}
	}
}

// A refused key ends a start whenever; another answer a new run's alone, and none neither's.
func TestUnwelcomeAnswers(t *testing.T) {
	status := func(code int) error { return fmt.Errorf("%w: %w", tinker.ErrRefused, &tinker.Error{Status: code}) }
	for name, test := range map[string]struct {
		err         error
		begins, has bool
	}{
		"down":         {fmt.Errorf("%w: connection refused", tinker.ErrDown), false, false},
		"unauthorized": {status(http.StatusUnauthorized), true, true},
		"forbidden":    {status(http.StatusForbidden), true, true},
		"not found":    {status(http.StatusNotFound), true, false},
		"no JSON":      {errors.New("no JSON"), true, false},
	} {
		if begins, goesOn := Unwelcome(test.err, false), Unwelcome(test.err, true); begins != test.begins || goesOn != test.has {
			t.Errorf("%s: %t for a new run and %t for one that goes on", name, begins, goesOn)
		}
	}
}

// What is saved has a name that every service takes, whatever the run is called.
func TestSavedNames(t *testing.T) {
	for run, want := range map[string]string{"serve": "serve", "a b.c/ü": "a-b-c--", strings.Repeat("x", 80): strings.Repeat("x", 64)} {
		if got := savedName(run); got != want {
			t.Errorf("%q becomes %q, want %q", run, got, want)
		}
	}
}

// What asks a service that is away is done when it is back, and another failure is one at once.
func TestAServiceIsWaitedFor(t *testing.T) {
	other := errors.New("something else")
	for _, test := range []struct {
		errs []error
		want error
	}{
		{[]error{nil}, nil},
		{[]error{fmt.Errorf("load: %w", tinker.ErrDown), tinker.ErrDown, nil}, nil},
		{[]error{tinker.ErrDown, other}, other},
	} {
		said, tries := 0, 0
		trainer := retryingTrainer{logf: func(string, ...any) { said++ }}
		err := trainer.patiently(t.Context(), func() error { tries++; return test.errs[tries-1] })
		if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || tries != len(test.errs) || said != tries-1 {
			t.Errorf("%v: %v after %d tries, of which %d were said", test.errs, err, tries, said)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	trainer := retryingTrainer{logf: t.Logf}
	if err := trainer.patiently(ended, func() error { return tinker.ErrDown }); !errors.Is(err, tinker.ErrDown) {
		t.Errorf("%v, want it to end with its context", err)
	}
}
