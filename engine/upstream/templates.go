package upstream

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop/port"
)

// templatesTokens is the default of TemplatesOptions.Tokens.
const templatesTokens = 8 << 20

// TemplatesOptions of a Templates.
type TemplatesOptions struct {
	// Engines are asked in turn, the least busy with it first. Those that cannot are passed over, and so are
	// those that do not answer within 20 s. At least one.
	Engines []*Engine
	// Away, if not nil, reports which of them are not to be asked now: their servers are not started.
	Away func(engine int) bool
	// Tokens bounds what is remembered, in tokens (of texts, in bytes); 0 means 8 Mi.
	Tokens int
}

// Templates renders chats and reads tokens by the engines that can, each in its turn. It remembers what it was told:
// the rollouts of a group begin with the same chat, and a turn's answer is read once. It is safe
// for concurrent use.
type Templates struct {
	engines []*Engine
	away    func(engine int) bool
	turns   *turns

	mu    sync.Mutex
	known map[[sha256.Size]byte]*list.Element
	// order has entries, the latest used first; size adds up theirs.
	order list.List
	size  int
	most  int
}

// remembered is one answer: tokens or a text.
type remembered struct {
	key    [sha256.Size]byte
	tokens []int32
	text   string
}

func (r *remembered) size() int { return len(r.tokens) + len(r.text) + sha256.Size }

// NewTemplates asks nothing yet.
func NewTemplates(o TemplatesOptions) (*Templates, error) {
	if len(o.Engines) == 0 {
		return nil, errors.New("upstream: templates need at least one engine")
	}
	o.Tokens = cmp.Or(o.Tokens, templatesTokens)
	if o.Away == nil {
		o.Away = func(int) bool { return false }
	}
	return &Templates{engines: slices.Clone(o.Engines), away: o.Away, turns: newTurns(o.Engines), known: map[[sha256.Size]byte]*list.Element{}, most: o.Tokens}, nil
}

// Render returns the tokens of a chat; messages and tools are JSON in OpenAI's shape. With
// generation the beginning of the assistant's next message stands at their end.
func (t *Templates) Render(ctx context.Context, messages, tools []byte, generation bool) ([]int32, error) {
	kind := byte('r')
	if generation {
		kind = 'g'
	}
	got, err := t.ask(ctx, keyOf(kind, messages, tools), func(ctx context.Context, e *Engine, caps *Capabilities, how Templater) (got remembered, err error) {
		got.tokens, err = how.Render(ctx, e.opt.Server, messages, tools, generation, caps)
		return got, err
	})
	return slices.Clone(got.tokens), err
}

// Encode returns the tokens of a text as it is, without any that stand for its beginning.
func (t *Templates) Encode(ctx context.Context, text string) ([]int32, error) {
	got, err := t.ask(ctx, keyOf('e', []byte(text)), func(ctx context.Context, e *Engine, caps *Capabilities, how Templater) (got remembered, err error) {
		got.tokens, err = how.Encode(ctx, e.opt.Server, text, caps)
		return got, err
	})
	return slices.Clone(got.tokens), err
}

// Decode is the text of tokens without special ones.
func (t *Templates) Decode(ctx context.Context, tokens []int32) (string, error) {
	bytes := make([]byte, 0, 4*len(tokens))
	for _, token := range tokens {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(token))
	}
	got, err := t.ask(ctx, keyOf('d', bytes), func(ctx context.Context, e *Engine, caps *Capabilities, how Templater) (got remembered, err error) {
		got.text, err = how.Decode(ctx, e.opt.Server, tokens, caps)
		return got, err
	})
	return got.text, err
}

// keyOf hashes what is asked; the lengths keep its parts apart.
func keyOf(kind byte, parts ...[]byte) (key [sha256.Size]byte) {
	h := sha256.New()
	h.Write([]byte{kind})
	var length [8]byte
	for _, part := range parts {
		binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	h.Sum(key[:0])
	return key
}

// ErrNoTokenizer is wrapped by the error where every engine has said that it renders no chats and reads
// no tokens. Another call would fail alike.
var ErrNoTokenizer = errors.New("no engine has a tokenizer")

// ask returns what is remembered, or asks engines until one answers.
func (t *Templates) ask(ctx context.Context, key [sha256.Size]byte, question func(context.Context, *Engine, *Capabilities, Templater) (remembered, error)) (remembered, error) {
	if got, ok := t.recall(key); ok {
		return got, nil
	}
	var problems []error
	asked, lacking := 0, 0
	for _, i := range t.turns.order() {
		if t.away(i) {
			continue
		}
		asked++
		t.turns.begin(i)
		got, err := t.engines[i].answer(ctx, question)
		status := StatusOf(err)
		final := ctx.Err() != nil || status >= 400 && status < 500 && status != 404 && status != 429 // the others would say the same
		t.turns.end(i, err == nil || final)
		switch {
		case err == nil:
			got.key = key
			t.remember(got)
			return got, nil
		case final:
			return remembered{}, err
		case errors.Is(err, errRendersNothing):
			lacking++
		}
		problems = append(problems, err)
	}
	switch asked {
	case 0:
		return remembered{}, fmt.Errorf("%w: none is started", port.ErrEngineDown)
	case lacking:
		return remembered{}, fmt.Errorf("%w: %w", ErrNoTokenizer, errors.Join(problems...))
	}
	return remembered{}, fmt.Errorf("no engine renders the chat or reads the tokens: %w", errors.Join(problems...))
}

// errRendersNothing: an engine's server has no tokenizer to answer with.
var errRendersNothing = errors.New("it renders no chats and reads no tokens")

// answer asks one engine.
func (e *Engine) answer(ctx context.Context, question func(context.Context, *Engine, *Capabilities, Templater) (remembered, error)) (remembered, error) {
	how, ok := e.opt.Dialect.(Templater)
	if !ok {
		return remembered{}, e.fail("a server of kind %s: %w", e.opt.Dialect.Kind(), errRendersNothing)
	}
	caps, err := e.readyBeside(ctx)
	if err != nil {
		return remembered{}, err
	}
	if !caps.Template {
		return remembered{}, e.fail("%w: %w", ErrLacking, errRendersNothing)
	}
	return bounded(ctx, func(ctx context.Context) (remembered, error) { return question(ctx, e, caps, how) })
}

// bounded gives one engine's answer its time, so that one that hangs does not keep the others from being
// asked. What an engine can is asked for before, with a limit to each of those questions.
func bounded(ctx context.Context, question func(context.Context) (remembered, error)) (remembered, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	return question(ctx)
}

func (t *Templates) recall(key [sha256.Size]byte) (remembered, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.known[key]
	if !ok {
		return remembered{}, false
	}
	t.order.MoveToFront(at)
	return *at.Value.(*remembered), true
}

// remember keeps an answer, and gives up those that were used longest ago where they are too many.
func (t *Templates) remember(got remembered) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.known[got.key]; ok || got.size() > t.most/8 {
		return
	}
	t.known[got.key] = t.order.PushFront(&got)
	t.size += got.size()
	for t.size > t.most {
		oldest := t.order.Back()
		old := t.order.Remove(oldest).(*remembered)
		t.size -= old.size()
		delete(t.known, old.key)
	}
}
