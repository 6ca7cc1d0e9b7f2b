package sglang

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// asking is a server that writes down what it is asked, and answers by path: 200 and success where nothing is said.
func asking(t *testing.T, answers map[string]string) (*upstream.Server, *[]string) {
	t.Helper()
	asked := &[]string{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*asked = append(*asked, strings.TrimSpace(r.URL.Path+" "+string(body)))
		answer, said := answers[r.URL.Path]
		if !said {
			answer = `{"success":true,"message":"done"}`
		}
		var status int
		if _, err := fmt.Sscanf(answer, "%d", &status); err == nil {
			http.Error(w, answer, status)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(front.Close)
	s, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, asked
}

var aGroup = upstream.Group{Name: "g", Address: "10.0.0.7", Port: 29500, RankOffset: 1, WorldSize: 5, Backend: "nccl"}

func TestGroups(t *testing.T) {
	s, asked := asking(t, nil)
	if err := New().Join(t.Context(), s, aGroup, nil); err != nil {
		t.Fatal(err)
	}
	if err := New().Part(t.Context(), s, aGroup, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`/init_weights_update_group {"backend":"nccl","group_name":"g","master_address":"10.0.0.7","master_port":29500,"rank_offset":1,"world_size":5}`,
		`/destroy_weights_update_group {"group_name":"g"}`,
	}
	if !slices.Equal(*asked, want) {
		t.Errorf("asked %q\nwant  %q", *asked, want)
	}
}

// TestPartOfNoGroup: who is not in a group, such as a server that was started again, has left it. Any other
// failure is one.
func TestPartOfNoGroup(t *testing.T) {
	for answer, fails := range map[string]bool{
		`400 {"success":false,"message":"The group to be destroyed does not exist."}`:  false,
		`{"success":false,"message":"The group to be destroyed does not exist."}`:      false,
		`400 {"error":{"message":"there is no group g"}}`:                              false,
		`400 {"success":false,"message":"Failed to destroy custom process group: x."}`: true,
		`{"success":false,"message":"Failed to destroy custom process group: what."}`:  true,
		`500 a path that does not exist`:                                               true,
	} {
		s, _ := asking(t, map[string]string{pathDestroyGroup: answer})
		if err := New().Part(t.Context(), s, aGroup, nil); (err != nil) != fails {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// distributed is what of an update's body is not its tensors' shapes.
type distributed struct {
	Names  []string `json:"names"`
	Types  []string `json:"dtypes"`
	Shapes [][]int  `json:"shapes"`
	Group  string   `json:"group_name"`
	Flush  bool     `json:"flush_cache"`
	Abort  *bool    `json:"abort_all_requests"`
	Label  *string  `json:"weight_version"`
}

// TestUpdateDistributed: tensors come in buckets and in their order; only the last has the label and the
// flush, and nothing is aborted.
func TestUpdateDistributed(t *testing.T) {
	s, asked := asking(t, nil)
	u := upstream.Update{Label: "v7", Cache: upstream.CacheFlush, Group: aGroup, Tensors: []upstream.Tensor{
		{Name: "embed", DType: "bfloat16", Shape: []int64{128 << 10, 1024}}, // 256 MiB
		{Name: "scale", DType: "float32"},                                   // one number
		{Name: "huge", DType: "bfloat16", Shape: []int64{1 << 20, 1024}},    // 2 GiB: a bucket of its own
		{Name: "a", DType: "float8_e4m3fn", Shape: []int64{512 << 20}},      // as much as goes into one
		{Name: "b", DType: "int32", Shape: []int64{1}},
	}}
	if err := New().Update(t.Context(), s, u, nil); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, text := range *asked {
		var body distributed
		text, ok := strings.CutPrefix(text, pathDistributed+" ")
		if err := json.Unmarshal([]byte(text), &body); err != nil || !ok {
			t.Fatalf("%s: %v", text, err)
		}
		last := i == len(*asked)-1
		if body.Group != "g" || body.Abort == nil || *body.Abort || body.Flush != last || (body.Label != nil) != last || last && *body.Label != "v7" {
			t.Errorf("request %d says %+v", i, body)
		}
		if len(body.Types) != len(body.Names) || len(body.Shapes) != len(body.Names) {
			t.Errorf("request %d has %d names, %d types, %d shapes", i, len(body.Names), len(body.Types), len(body.Shapes))
		}
		names = append(names, strings.Join(body.Names, " "))
	}
	if want := []string{"embed scale", "huge", "a", "b"}; !slices.Equal(names, want) {
		t.Errorf("buckets %q, want %q", names, want)
	}
	if !strings.Contains((*asked)[0], `"shapes":[[131072,1024],[]]`) {
		t.Errorf("a number has the shape %s, want none of its own", (*asked)[0])
	}
}

// TestFailedUpdateDistributed: the first bucket that is refused ends the update, with the server's word.
func TestFailedUpdateDistributed(t *testing.T) {
	two := []upstream.Tensor{{Name: "a", DType: "int8", Shape: []int64{bucketBytes}}, {Name: "b", DType: "int8", Shape: []int64{1}}}
	for name, c := range map[string]struct {
		answer, says string
		tensors      []upstream.Tensor
		asked        int
	}{
		"no success":   {`{"success":false,"message":"no such group"}`, "no such group", two, 1},
		"a refusal":    {"400 it has no tensor b", "it has no tensor b", two, 1},
		"many words":   {`{"success":false,"message":"` + strings.Repeat("x", 1<<20) + `"}`, "did not succeed", two, 1},
		"nothing said": {"{}", "did not succeed", two, 1},
		"a type that torch has not": {`{"success":true}`, `"F32"`,
			[]upstream.Tensor{{Name: "a", DType: "F32"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := asking(t, map[string]string{pathDistributed: c.answer})
			err := New().Update(t.Context(), s, upstream.Update{Label: "v7", Group: aGroup, Tensors: c.tensors}, nil)
			if err == nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 2<<10 || len(*asked) != c.asked {
				t.Errorf("after %d requests it says %v, want %d and something of %q", len(*asked), err, c.asked, c.says)
			}
		})
	}
}

// TestRanks: a server whose ranks have no numbers of their own in a group is not asked to join one.
func TestRanks(t *testing.T) {
	for info, want := range map[string]struct {
		ranks int
		lacks string
	}{
		`{}`:            {1, ""},
		`{"tp_size":4}`: {4, ""},
		`{"tp_size":8,"dp_size":4,"enable_dp_attention":true}`: {8, ""},
		`{"tp_size":2,"pp_size":2}`:                            {2, "2 pipeline stages"},
		`{"tp_size":1,"dp_size":3}`:                            {1, "3 data-parallel ranks"},
	} {
		s, _ := asking(t, map[string]string{"/server_info": info, "/workers": "404 none"})
		p := &prober{ctx: t.Context(), s: s, caps: &upstream.Capabilities{Paths: map[string]bool{pathInitGroup: true, pathDestroyGroup: true, pathDistributed: true}}}
		for _, step := range []func() error{p.server, p.controls} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		p.missing()
		said := slices.ContainsFunc(p.caps.Missing, func(m upstream.Missing) bool { return want.lacks != "" && strings.Contains(m.What, want.lacks) })
		if p.caps.Ranks != want.ranks || p.caps.UpdateDistributed != (want.lacks == "") || said != (want.lacks != "") {
			t.Errorf("%s: %d ranks, can receive %v, lacks %+v", info, p.caps.Ranks, p.caps.UpdateDistributed, p.caps.Missing)
		}
	}
}
