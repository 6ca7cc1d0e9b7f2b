package upstream

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
)

func TestGenerateRecordsEveryToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine(t, newFakeServer(t), nil)
		var told []int32
		first := loop.NoVersion
		req := request(0, 40)
		req.OnTokens = func(d live.Delta) { told = append(told, d.Tokens...) }
		req.FirstToken = func(v loop.Version) { first = v }
		g, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		checkTokens(t, g, fakePromptOf)
		if len(g.Tokens) != 40 || !g.Truncated || g.Interrupted || g.Pruned || !g.Derived {
			t.Errorf("%d tokens, %+v", len(g.Tokens), g)
		}
		if first != 0 || !slices.Equal(told, g.Tokens) {
			t.Errorf("the first token was told as of version %d, tokens as %v", first, told)
		}
	})
}
