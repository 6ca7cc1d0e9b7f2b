package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// One rendering a turn is enough where the template extends what it rendered and spells an answer as it was
// sampled; an answer in another spelling costs its own next turn a second one, and no turn after that.
func TestOneRenderingATurn(t *testing.T) {
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response {
		text := fmt.Sprintf("answer %d", n)
		if n == 3 {
			return says(text) // in the other spelling
		}
		return response{tokens: append(encode(text), imEnd), finish: "stop"}
	})
	chat := []any{user("hello")}
	for turn := range 8 {
		before := h.template.called("render")
		reply := h.ask(object{"messages": chat})
		want := 1
		switch turn {
		case 1:
			want += 2 // how the template ends a message is asked for once
		case 4:
			want++
		}
		if got := h.template.called("render") - before; got != want {
			t.Errorf("turn %d costs %d renderings, want %d", turn, got, want)
		}
		if c := reply.Choices[0].Headway; c.Branch != 0 {
			t.Errorf("turn %d: %+v", turn, c)
		}
		chat = append(chat, reply.answer(t, 0), user(fmt.Sprint("and ", turn)))
	}
}

// drawn is one conversation: its template and all that is said in it.
type drawn struct {
	forgetful, blank, trims, mute, counts bool
	answers                               []response
	said                                  []any
	days                                  []string
}

func drawConversation(r *rand.Rand) *drawn {
	one := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	d := &drawn{forgetful: r.IntN(4) == 0, blank: r.IntN(4) == 0, trims: r.IntN(3) == 0, mute: r.IntN(12) == 0, counts: r.IntN(6) == 0}
	dated, changes := r.IntN(3) == 0, r.IntN(2) == 0
	plainOnly := r.IntN(3) == 0
	for i := range 2 + r.IntN(6) {
		text := one("", "", "<think>\nhm\n</think>\n\n", "<think></think>", " ") + one("so", "a b", "ünd", "x", "7", "so so") + one("", "", "\n", "  ")
		a := response{tokens: append(encode(text), imEnd), finish: "stop"}
		if !plainOnly {
			switch r.IntN(8) {
			case 0, 1:
				a.tokens = append(spell(text), imEnd)
			case 2:
				a = response{tokens: encode(text), finish: "length"}
			case 5:
				a = response{tokens: encode("<think>\nhm"), finish: "length"}
			case 3:
				a.tokens = append(encode(text), endText)
			case 4:
				a.tokens = append(a.tokens, encode("\n")...)
			}
		}
		d.answers = append(d.answers, a)
		d.said = append(d.said, object{"role": one("user", "user", "tool"), "content": one("y", "more ", "so", "")})
		day := ""
		if dated {
			day = "monday"
			if changes && i > 0 && r.IntN(3) == 0 {
				day = "tuesday"
			}
		}
		d.days = append(d.days, day)
	}
	return d
}

// play has the conversation and returns its turns, and how many renderings it took. With compare every turn is told
// by two renderings, as it has to be where one proves nothing.
func (d *drawn) play(t *testing.T, compare bool) (records []record, wholes [][]int32, renderings int) {
	t.Helper()
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return d.answers[n] }, func(o *Options) {
		o.Logf = func(string, ...any) {}
	})
	h.template.forgetful, h.template.blank, h.template.trims, h.template.mute, h.template.counts = d.forgetful, d.blank, d.trims, d.mute, d.counts
	chat := []any{object{"role": "system", "content": "be brief"}, user("hello")}
	for i, said := range d.said {
		h.template.day = d.days[i]
		reply := h.ask(object{"messages": chat})
		whole, err := (&reference{forgetful: d.forgetful, blank: d.blank, trims: d.trims, counts: d.counts, day: d.days[i]}).Render(t.Context(), []byte(mustJSON(t, chat)), nil, true)
		if err != nil {
			t.Fatal(err)
		}
		wholes = append(wholes, whole)
		if compare {
			for _, turn := range h.gateway.conversations["g1-s0-a0"].turns {
				turn.rendered = prefix{}
			}
		}
		chat = append(chat, reply.answer(t, 0), said)
	}
	return h.port.seen(), wholes, h.template.called("render")
}

// Whatever the template and the chat: a prompt that one rendering proves is the prompt that two tell, and where
// all was sampled in the template's spelling it is the rendering of the whole chat.
func TestProvenIsWhatTwoRenderingsTell(t *testing.T) {
	fewer, wholly := 0, 0
	for seed := range uint64(400) {
		d := drawConversation(rand.New(rand.NewPCG(28, seed)))
		got, wholes, renderings := d.play(t, false)
		want, _, compared := d.play(t, true)
		for i := range want {
			if got[i].branch != want[i].branch || !slices.Equal(got[i].prompt, want[i].prompt) {
				t.Fatalf("seed %d, turn %d: branch %d, want %d; %+v\n got %s\nwant %s", seed, i, got[i].branch, want[i].branch, d, shown(got[i].prompt), shown(want[i].prompt))
			}
			if i > 0 && got[i].branch == got[i-1].branch {
				sequence := slices.Concat(got[i-1].prompt, d.answers[i-1].tokens)
				equalTokens(t, fmt.Sprintf("seed %d, turn %d begins with what was sampled", seed, i), got[i].prompt[:len(sequence)], sequence)
			}
			if slices.Equal(got[i].prompt, wholes[i]) {
				wholly++
			}
		}
		if renderings > compared {
			t.Fatalf("seed %d: %d renderings, and %d by comparing every turn", seed, renderings, compared)
		}
		if renderings < compared {
			fewer++
		}
	}
	if fewer < 100 || wholly < 400 {
		t.Errorf("%d of 400 conversations took fewer renderings, %d prompts are whole renderings: the drawn chats show little", fewer, wholly)
	}
}
