package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/program"
)

// failing is a program whose worlds break rules on some seeds.
func failing(rules map[uint64]string) run {
	return func(_ context.Context, j program.Job) (program.Result, error) {
		return program.Result{Rule: rules[j.Seed], Text: "text"}, nil
	}
}

// The lowest seed that fails with the bug alone is the answer, however many worlds run side by side.
func TestFind(t *testing.T) {
	bad := failing(map[uint64]string{3: "once", 5: program.Harness, 9: program.Hang, 10: "twice", 11: "once"})
	clean := failing(map[uint64]string{3: program.Stuck})
	for _, jobs := range []int{1, 2, 16} {
		var f found
		if err := find(context.Background(), jobs, 2000, bad, clean, &f, func() {}); err != nil {
			t.Fatal(err)
		}
		if f.Seed != 9 || f.Rule != program.Hang || f.Tried < 9 || f.Tried > 9+16 || !slices.Equal(f.Both, []uint64{3}) || !slices.Equal(f.Harness, []uint64{5}) {
			t.Errorf("%d jobs: %+v", jobs, f)
		}
	}
	var f found
	if err := find(context.Background(), 2, 8, bad, clean, &f, func() {}); err != nil || f.Seed != 0 || f.Tried != 8 || !f.settled(8) || f.settled(9) {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestDoctoredKeepsResults(t *testing.T) {
	c := doctoredCmd{Results: filepath.Join(t.TempDir(), "results.json")}
	path, r, err := c.known("sum")
	if err != nil || path != c.Results || len(r.Builds) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	r.Builds = []found{{Name: "0001-x", Seed: 7, Tried: 8, Rule: "once"}}
	if err := keepDoctored(path, r); err != nil {
		t.Fatal(err)
	}
	if _, r, err = c.known("sum"); err != nil || len(r.Builds) != 1 || !r.Builds[0].settled(2000) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, _, err := c.known("another"); err == nil {
		t.Error("results beside another clean build are taken")
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.known("sum"); err == nil {
		t.Error("half a file is taken")
	}
}

func TestPrintDoctored(t *testing.T) {
	var out bytes.Buffer
	printDoctored(&out, doctoredReport{Builds: []found{
		{Name: "0001-a", Seed: 7, Tried: 8, Rule: "once", Text: "rollout 7 ended twice\nand more"},
		{Name: "0002-b", Title: "A fence that asks nobody", Tried: 2000, Both: []uint64{3}},
		{Name: "0003-c", Trouble: "does not apply"},
		{Name: "0004-d", Seed: 90, Tried: 90, Rule: "once"},
	}})
	contains(t, out.String(), "0001-a  7          once  rollout 7 ended twice…\n", "over 2000  –     A fence that asks nobody, 1 of which fail without the bug as well", "not known  –     does not apply", "2 of 4 builds found; half of them within 7 seeds, all within 90; by once 2")
}

func TestBugs(t *testing.T) {
	all, err := bugs(nil)
	if err != nil || len(all) < 30 {
		t.Fatalf("%d builds, %v", len(all), err)
	}
	for _, name := range []string{"1", "0001", all[0].Name, all[0].Name[5:]} {
		if found, err := bugs([]string{name}); err != nil || len(found) != 1 || found[0].Name != all[0].Name {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	if found, err := bugs([]string{"no-such-build"}); err == nil {
		t.Errorf("%v", found)
	}
}
