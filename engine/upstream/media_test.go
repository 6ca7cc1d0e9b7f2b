package upstream

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// A server's prompt with two images, and what is told of it.
func TestLook(t *testing.T) {
	items := []media.Item{{Modality: media.Image, Offset: 1, Length: 3}, {Modality: media.Image, Offset: 5, Length: 2}}
	prompt := []int32{1, 9, 9, 9, 2, 9, 9, 3}
	for _, c := range []struct {
		name string
		said *Expansion
		want string
	}{
		{"as it is recorded", &Expansion{Prompt: prompt, Places: items}, ""},
		{"an image dropped in silence", &Expansion{Prompt: prompt, Places: items[:1]}, "sent 2 media and has read 1"},
		{"a blind server", &Expansion{Prompt: prompt}, "sent 2 media and has read 0"},
		{"placeholders expanded twice", &Expansion{Prompt: slices.Concat(prompt[:4], prompt[1:]), Places: items}, "or twice"},
		{"another size", &Expansion{Prompt: prompt, Places: []media.Item{items[0], {Modality: media.Image, Offset: 5, Length: 1}}}, "recorded at [5, 7)"},
		{"other tokens", &Expansion{Prompt: []int32{1, 9, 9, 9, 4, 9, 9, 3}, Places: items}, "other tokens"},
		{"a server that does not say", nil, "does not say"},
	} {
		call := &call{request: Request{Prompt: prompt, Media: items}}
		err := call.look(&Delta{Tokens: []int32{7}, Expanded: c.said})
		if c.want == "" {
			if err != nil || !call.seen || call.look(&Delta{Tokens: []int32{7}}) != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.Is(err, ErrLied) || !errors.Is(err, port.ErrMedia) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	silent := &call{request: Request{Prompt: prompt, Media: items}}
	if err := silent.look(&Delta{}); err != nil || silent.seen {
		t.Errorf("an event that brings nothing: %v", err)
	}
	blind := &call{request: Request{Prompt: prompt}}
	if err := blind.look(&Delta{Tokens: []int32{7}}); err != nil {
		t.Errorf("a prompt without media: %v", err)
	}
}

// Servers of other kinds are handed no media.
func TestSees(t *testing.T) {
	e := &Engine{opt: Options{Dialect: fakeDialect{}}}
	if err := e.Sees(media.Image); !errors.Is(err, port.ErrMedia) || !strings.Contains(err.Error(), "kind fake") {
		t.Errorf("%v", err)
	}
}
