package upstream

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// The fake server's model has three layers, of which the first is dense, and sends two of eight experts.
const fakeExperts = 8

var fakeForm = rows.Form{
	Header: channel.Header{Name: channel.RoutedExperts, DType: channel.U8, Row: []int{3, 2}, Align: channel.Passes},
	Wire:   rows.Numpy, Experts: fakeExperts, Routed: []bool{false, true, true},
}

// fakeRow is the row of a pass: by its place in the sequence and the weights that computed it.
func fakeRow(place int, weights loop.Version) []byte {
	a := byte(place+int(weights)*3) % fakeExperts
	return []byte{0, 0, a, (a + 1) % fakeExperts, (a + 3) % fakeExperts, (a + 5) % fakeExperts}
}

// fakeNpy is rows as vLLM writes them.
func fakeNpy(dtype string, n int, data []byte) string {
	words := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, 3, 2), }\n", dtype, n)
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(words)), byte(len(words)>>8))
	return base64.StdEncoding.EncodeToString(append(append(file, words...), data...))
}

// passes are the rows of a call from start on. Those of its own tokens are of the weights that sampled these; those
// before are of the weights that the cache has them of.
func (c *fakeStream) passes(start int, cached loop.Version) (data []byte, n int) {
	for i := start; i < len(c.q.Prompt)+len(c.tokens)-1; i++ {
		weights := cached
		if own := i + 1 - len(c.q.Prompt); own >= 0 {
			weights = loop.Version(c.tokens[own] / placesMax)
		}
		data, n = append(data, fakeRow(i, weights)...), n+1
	}
	return data, n
}

// saysRows has a fake server say rows of what is cached under version 0.
func saysRows(c *fakeStream, _ string, e *fakeEvent) {
	data, n := c.passes(c.q.Known, 0)
	e.R = fakeNpy("|u1", n, data)
}

// keeper collects what is handed on, with the data copied.
type keeper []port.Rows

func (k *keeper) keep(r port.Rows) {
	r.Data = slices.Clone(r.Data)
	*k = append(*k, r)
}

// channelled is an engine over a fake server that says rows.
func channelled(t *testing.T, change func(f *fakeServer, o *Options)) (*fakeServer, *Engine) {
	f := newFakeServer(t)
	f.caps.Channels, f.side = []rows.Form{fakeForm}, saysRows
	return f, newFakeEngine(t, f, func(o *Options) {
		o.Server.Channels = []string{channel.RoutedExperts}
		if change != nil {
			change(f, o)
		}
	})
}

// join puts rows together by the rules, and returns of each row the answer that it comes from, and its data.
func join(t *testing.T, g port.Generation, prompt int, kept keeper) (from string, data [][]byte) {
	t.Helper()
	mask := append(make([]uint8, prompt), slices.Repeat([]uint8{1}, len(g.Tokens))...)
	ch := channel.Channel{Header: fakeForm.Header}
	for i, r := range kept {
		if err := ch.Add(channel.Part{Start: int32(r.Start), Rows: int32(r.Count), Blob: int32(i)}, r.First, mask); err != nil {
			t.Fatal(err)
		}
	}
	out := slices.Repeat([]byte{'.'}, len(mask)-1)
	data = make([][]byte, len(out))
	width := fakeForm.RowBytes()
	for _, p := range ch.Parts {
		for i := range int(p.Rows) {
			at := int(p.Skip) + i
			out[int(p.Start)+i], data[int(p.Start)+i] = byte('a'+p.Blob), kept[p.Blob].Data[at*width:(at+1)*width]
		}
	}
	return string(out), data
}

// checkRows holds the rows of sampled tokens against the weights that sampled these.
func checkRows(t *testing.T, g port.Generation, prompt int, kept keeper, want string) {
	t.Helper()
	from, data := join(t, g, prompt, kept)
	if from != want {
		t.Errorf("rows are of the answers %s, want %s", from, want)
	}
	for i := range g.Tokens {
		if row := data[prompt+i-1]; row != nil && !slices.Equal(row, fakeRow(prompt+i-1, g.Versions[i])) {
			t.Errorf("the row of token %d, sampled by version %d, is %v", i, g.Versions[i], row)
		}
	}
}

// channelOf is the status of the only channel.
func channelOf(t *testing.T, e *Engine) ChannelStatus {
	t.Helper()
	all := e.Status().Channels
	if len(all) != 1 {
		t.Fatalf("%d channels: %v", len(all), all)
	}
	return all[0]
}

func TestRowsOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, e := channelled(t, nil)
		var kept keeper
		req := request(0, 5)
		req.Keep = kept.keep
		g, err := e.Generate(t.Context(), req)
		if err != nil || len(kept) != 1 {
			t.Fatalf("%v, %d answers with rows", err, len(kept))
		}
		r := kept[0]
		if r.Start != 0 || r.Count != fakePromptOf+4 || r.First != fakePromptOf || !r.Same(fakeForm.Header) || len(r.Data) != r.Count*6 {
			t.Errorf("%d rows from %d on after %d tokens, %d bytes of %v", r.Count, r.Start, r.First, len(r.Data), r.Header)
		}
		checkRows(t, g, fakePromptOf, kept, "aaaaaaaaaaa")
		req.Known, kept = 6, nil // a next turn has those before
		if _, err := e.Generate(t.Context(), req); err != nil || len(kept) != 1 || kept[0].Start != 6 || kept[0].Count != 5 {
			t.Errorf("%v: %v", err, kept)
		}
		if f.calls[1].Known != 6 || !slices.Equal(f.calls[0].Asked, []string{channel.RoutedExperts}) {
			t.Errorf("asked for %+v", f.calls)
		}
		// The server samples two tokens behind a stop, and says their rows too.
		f.set(func() { f.fault = func(int, fakeCall) fault { return fault{together: true} } })
		req.Known, kept = 0, nil
		req.Check = func(tokens []int32) bool { return len(tokens) == 3 }
		if _, err := e.Generate(t.Context(), req); err != nil || len(kept) != 1 || kept[0].Count != fakePromptOf+2 || len(kept[0].Data) != 6*kept[0].Count {
			t.Errorf("%v: %v", err, kept)
		}
		if s := channelOf(t, e); s.Answers != 3 || len(s.Dropped) != 0 || s.Unstarted != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestNobodyWantsRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e := channelled(t, nil)
		g, err := e.Generate(t.Context(), request(0, 5))
		if err != nil {
			t.Fatal(err)
		}
		checkTokens(t, g, fakePromptOf)
		if s := e.Status().Channels; s != nil {
			t.Errorf("status %+v", s)
		}
	})
}

func TestRowsThatAreDropped(t *testing.T) {
	for _, c := range []struct {
		name string
		say  func(c *fakeStream, finish string, e *fakeEvent)
		want rows.Reason
	}{
		{"rows missing in a stream", func(*fakeStream, string, *fakeEvent) {}, rows.Missing},
		{"rows one too many", func(c *fakeStream, _ string, e *fakeEvent) {
			data, n := c.passes(0, 0)
			e.R = fakeNpy("|u1", n+1, append(data, fakeRow(n, 0)...))
		}, rows.Count},
		{"a range with a hole", func(c *fakeStream, _ string, e *fakeEvent) {
			data, n := c.passes(0, 0)
			e.R = fakeNpy("|u1", n-1, append(data[:12], data[18:]...))
		}, rows.Count},
		{"ids beyond the experts", func(c *fakeStream, _ string, e *fakeEvent) {
			data, n := c.passes(0, 0)
			data[8] = fakeExperts
			e.R = fakeNpy("|u1", n, data)
		}, rows.Beyond},
		{"wrong dtype", func(c *fakeStream, _ string, e *fakeEvent) {
			data, n := c.passes(0, 0)
			e.R = fakeNpy("<i4", n, slices.Repeat(data, 4))
		}, rows.Odd},
		{"all-zero MoE layers", func(c *fakeStream, _ string, e *fakeEvent) {
			data, n := c.passes(0, 0)
			copy(data[6*(n-1):], make([]byte, 6))
			e.R = fakeNpy("|u1", n, data)
		}, rows.Zeros},
		{"an expert twice", func(c *fakeStream, _ string, e *fakeEvent) {
			data, n := c.passes(0, 0)
			data[9] = data[8]
			e.R = fakeNpy("|u1", n, data)
		}, rows.Repeated},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said []string
				_, e := channelled(t, func(f *fakeServer, o *Options) {
					f.side = c.say
					o.Logf = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
				})
				for range 2 {
					req := request(0, 5)
					req.Keep = func(r port.Rows) { t.Errorf("%d rows were kept", r.Count) }
					g, err := e.Generate(t.Context(), req)
					if err != nil {
						t.Fatal(err)
					}
					checkTokens(t, g, fakePromptOf)
				}
				if s := channelOf(t, e); s.Answers != 0 || len(s.Dropped) != 1 || s.Dropped[c.want] != 2 {
					t.Errorf("status %+v", s)
				}
				if len(said) != 1 || !strings.Contains(said[0], c.want.String()) {
					t.Errorf("it says %q", said)
				}
			})
		})
	}
}

func TestAServerThatIgnoresTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e := channelled(t, func(f *fakeServer, _ *Options) {
			f.side = func(c *fakeStream, _ string, e *fakeEvent) {
				data, n := c.passes(0, 0)
				e.R = fakeNpy("|u1", n, data)
			}
		})
		var kept keeper
		req := request(0, 5)
		req.Keep, req.Known = kept.keep, 6
		if _, err := e.Generate(t.Context(), req); err != nil || len(kept) != 1 || kept[0].Start != 0 || kept[0].Count != fakePromptOf+4 {
			t.Fatalf("%v: %v", err, kept)
		}
		if s := channelOf(t, e); s.Answers != 1 || s.Unstarted != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

// A switch cuts the response off and it goes on under other weights. The rows of the first call are those of the
// weights then, whatever the second call says of them.
func TestRowsThroughASwitchThatCutsOff(t *testing.T) {
	for _, c := range []struct {
		name string
		say  func(c *fakeStream, finish string, e *fakeEvent)
		want string // where each row comes from
	}{
		{"aborts return what there was", saysRows, "aaaaaaaaabbb"},
		{"cache poisoned by an in-place update", func(c *fakeStream, _ string, e *fakeEvent) {
			data, n := c.passes(0, 1)
			e.R = fakeNpy("|u1", n, data)
		}, "aaaaaaaaabbb"},
		{"rows lost at a partial resume", func(c *fakeStream, finish string, e *fakeEvent) {
			if finish != "abort" {
				saysRows(c, finish, e)
			}
		}, "aaaaaa...aaa"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, e := channelled(t, func(f *fakeServer, _ *Options) {
					f.caps.Pause, f.caps.VersionSpans, f.side = false, true, c.say
				})
				var kept keeper
				req := request(0, 6)
				req.Keep = kept.keep
				done := make(chan port.Generation)
				go func() {
					g, err := e.Generate(t.Context(), req)
					if err != nil {
						t.Error(err)
					}
					done <- g
				}()
				time.Sleep(3*f.step + f.step/2)
				serveVersion(t, e, 1)
				g := <-done
				checkTokens(t, g, fakePromptOf)
				if g.Versions[0] != 0 || g.Versions[5] != 1 || len(f.calls) != 2 {
					t.Fatalf("versions %v in %d calls", g.Versions, len(f.calls))
				}
				checkRows(t, g, fakePromptOf, kept, c.want)
				asked := fakePromptOf + 3 - 1 // what the first call has said is not asked for again
				if strings.Contains(c.want, ".") {
					asked = 0
				}
				if f.calls[0].Known != 0 || f.calls[1].Known != asked {
					t.Errorf("rows are asked for from %d and %d on, want 0 and %d", f.calls[0].Known, f.calls[1].Known, asked)
				}
			})
		})
	}
}

// A response whose stream breaks off after its last token goes on before that token: the pass that samples it again is
// asked for, though rows of it came.
func TestRowsOfALastTokenThatIsSampledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, e := channelled(t, func(f *fakeServer, _ *Options) {
			f.fault = func(call int, _ fakeCall) fault { return fault{noMark: call == 0} }
		})
		var kept keeper
		req := request(0, 5)
		req.Keep = kept.keep
		g, err := e.Generate(t.Context(), req)
		if err != nil || len(f.calls) != 2 || len(g.Tokens) != 5 {
			t.Fatalf("%v, %d calls, tokens %v", err, len(f.calls), g.Tokens)
		}
		if again := len(f.calls[1].Prompt); f.calls[1].Known != again-1 {
			t.Errorf("rows from %d on are asked for after %d tokens", f.calls[1].Known, again)
		}
		if from, _ := join(t, g, fakePromptOf, kept); strings.Contains(from, ".") {
			t.Errorf("rows are of the answers %s", from)
		}
	})
}

func TestAnAbortWithNoTokenAndNoField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e := channelled(t, func(f *fakeServer, _ *Options) {
			f.side = func(c *fakeStream, finish string, e *fakeEvent) {
				if len(c.tokens) > 0 {
					saysRows(c, finish, e)
				}
			}
			f.fault = func(call int, _ fakeCall) fault {
				if call == 0 {
					return fault{hangs: true}
				}
				return fault{}
			}
		})
		interrupt := make(chan struct{})
		req := request(0, 5)
		req.Interrupt = interrupt
		req.Keep = func(port.Rows) { t.Error("rows of an answer that has none") }
		time.AfterFunc(time.Second, func() { close(interrupt) })
		g, err := e.Generate(t.Context(), req)
		if err != nil || !g.Interrupted || len(g.Tokens) != 0 {
			t.Fatalf("%v, %+v", err, g)
		}
		if s := e.Status().Channels; s != nil {
			t.Errorf("an answer that had not begun counts: %+v", s)
		}
	})
}

// What is taken back has no rows either.
func TestRowsOfTokensThatAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, e := channelled(t, func(f *fakeServer, _ *Options) { f.sham = true })
		req := request(0, 900)
		req.Keep = func(r port.Rows) { t.Errorf("%d rows of tokens that nobody knows the weights of", r.Count) }
		done := make(chan error)
		go func() {
			_, err := e.Generate(t.Context(), req)
			done <- err
		}()
		ended := request(1, 50) // while the server should stand still
		ended.Keep = req.Keep
		go func() {
			_, err := e.Generate(t.Context(), ended)
			done <- err
		}()
		time.Sleep(20 * f.step)
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 1, false); err == nil {
			t.Error("a server that samples in a pause is switched")
		}
		for range 2 {
			if err := <-done; err == nil {
				t.Error("its response is believed")
			}
		}
	})
}

// masksOf are the masks of tokens: two ids beside each.
func masksOf(tokens []int32) (all [][]int32) {
	for _, token := range tokens {
		all = append(all, []int32{token - 1, token, token + 1}[token%2:])
	}
	return all
}

func TestMasks(t *testing.T) {
	for _, c := range []struct {
		name string
		say  func(tokens []int32) [][]int32
		want rows.Reason
	}{
		{"good", masksOf, ""},
		{"none", func([]int32) [][]int32 { return nil }, rows.Missing},
		{"one too few", func(tokens []int32) [][]int32 { return masksOf(tokens[1:]) }, rows.Count},
		{"a mask without its token", func(tokens []int32) [][]int32 {
			all := masksOf(tokens)
			all[2] = []int32{tokens[2] + 7}
			return all
		}, rows.Tokenless},
		{"an empty mask", func(tokens []int32) [][]int32 {
			all := masksOf(tokens)
			all[1] = nil
			return all
		}, rows.Tokenless},
		{"-1 in a mask", func(tokens []int32) [][]int32 {
			all := masksOf(tokens)
			all[0] = append(all[0], -1)
			return all
		}, rows.Negative},
		{"beyond the vocabulary", func(tokens []int32) [][]int32 {
			all := masksOf(tokens)
			all[0] = append(all[0], fakeVocab)
			return all
		}, rows.Beyond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, e := channelled(t, func(f *fakeServer, o *Options) {
					f.caps.Channels = []rows.Form{rows.Masks}
					f.side = func(s *fakeStream, _ string, e *fakeEvent) { e.M = c.say(s.tokens) }
					f.fault = func(int, fakeCall) fault { return fault{together: true} }
					o.Server.Channels = []string{channel.SamplingMask}
				})
				var kept keeper
				req := request(0, 6)
				req.Sampling = &port.Sampling{Temperature: 1, TopK: 3}
				req.Keep = kept.keep
				req.Prefix = port.Prefix{Tokens: []int32{7, 8}, Logprobs: []float32{-1, -1}, Versions: []loop.Version{0, 0}, TextPartial: true}
				req.Check = func(tokens []int32) bool { return len(tokens) == 5 }
				g, err := e.Generate(t.Context(), req)
				if err != nil || len(g.Tokens) != 5 {
					t.Fatalf("%v: %v", err, g.Tokens)
				}
				if c.want != "" {
					if s := channelOf(t, e); len(kept) != 0 || s.Dropped[c.want] != 1 || len(s.Dropped) != 1 {
						t.Errorf("%v, status %+v", kept, s)
					}
					return
				}
				want := []byte{3, 0, 0, 0} // masks
				for _, mask := range masksOf(g.Tokens[2:]) {
					want = binary.LittleEndian.AppendUint32(want, uint32(len(mask)))
				}
				for _, mask := range masksOf(g.Tokens[2:]) {
					for _, id := range mask {
						want = binary.LittleEndian.AppendUint32(want, uint32(id))
					}
				}
				if len(kept) != 1 || kept[0].Start != 2 || kept[0].Count != 3 || !slices.Equal(kept[0].Data, want) || !kept[0].Ragged || !kept[0].Holds(3, kept[0].Data) {
					t.Errorf("%+v, want the data %v", kept, want)
				}
				// Without a cut a mask would be the whole vocabulary: it is not asked for.
				req = request(1, 3)
				req.Keep = func(port.Rows) { t.Error("masks that were not asked for") }
				if _, err := e.Generate(t.Context(), req); err != nil || len(f.calls[1].Asked) != 0 {
					t.Errorf("%v, asked for %v", err, f.calls[1].Asked)
				}
			})
		})
	}
}

func TestRowsThatWereNotAskedForAreReadPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e := channelled(t, func(f *fakeServer, o *Options) {
			f.caps.Channels = []rows.Form{rows.Masks}
			f.side = func(_ *fakeStream, _ string, e *fakeEvent) { e.R = strings.Repeat("A", 4<<20) }
			o.Server.Channels = []string{channel.SamplingMask}
		})
		g, err := e.Generate(t.Context(), request(0, 5))
		if err != nil {
			t.Fatal(err)
		}
		checkTokens(t, g, fakePromptOf)
	})
}

func TestAServerWithoutAChannelIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newBareEngine(t, f, func(o *Options) { o.Server.Channels = []string{channel.RoutedExperts} })
		if err := e.Load(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "it says no routed_experts (rollout.channels)") {
			t.Errorf("it is taken: %v", err)
		}
	})
}
