package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"testing"
)

// ban forbids calls or imports in some rooms.
type ban struct {
	claims []claim  // the rooms that make one of these claims, or, where it is nil,
	rooms  []string // these rooms
	alone  bool     // the rooms without those inside them
	pkg    string   // the package
	calls  []string // its members; nil for the whole package
	except []string // members that are fine
	tests  bool     // whether tests are banned too
	why    string
}

// adapters are the rooms of devices and of what drives them.
var adapters = []string{"drive/cell", "drive/live", "engine", "train", "env/code", "env/remote", "store/weights", "store"}

// seeded are the members of math/rand/v2 that make a generator of one's own.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "Rand", "PCG", "ChaCha8", "Source"}

var bans = []ban{
	{claims: []claim{repeatable, pure}, pkg: "time", calls: []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
		why: "the same input must give the same bytes: time comes in with the event"},
	{claims: []claim{repeatable, pure}, pkg: "math/rand", why: "seeded, order-free draws are workload's Source"},
	{claims: []claim{repeatable, pure}, pkg: "math/rand/v2", except: seeded,
		why: "the global generator has no seed: draw from workload's Source or a generator of your own"},
	{claims: []claim{repeatable, pure}, pkg: "crypto/rand", why: "a run is a function of its seed"},
	{rooms: []string{"loop"}, alone: true, pkg: "math/rand/v2", why: "the loop draws nothing"},
	{rooms: []string{"loop"}, alone: true, pkg: "sync", why: "one goroutine owns the loop"},
	{rooms: adapters, pkg: "math/rand/v2", except: seeded, tests: true,
		why: "the global generator has no seed: a run is a function of its own"},
	{rooms: []string{"env"}, alone: true, pkg: "math/rand/v2", except: seeded, tests: true,
		why: "the global generator has no seed: a run is a function of its own"},
	{claims: []claim{pure}, pkg: "os", why: "a pure room does no I/O: take bytes or a reader"},
	{claims: []claim{pure}, pkg: "os/exec", why: "a pure room starts nothing"},
	{claims: []claim{pure}, pkg: "net", why: "a pure room does no I/O: net/netip and net/url read addresses"},
	{claims: []claim{pure}, pkg: "net/http", why: "a pure room does no I/O"},
	{claims: []claim{pure}, pkg: "syscall", why: "a pure room does no I/O"},
	{claims: []claim{pure}, pkg: "path/filepath", why: "a pure room reads no files"},
	{claims: []claim{repeatable, pure}, pkg: "log", why: "return errors, do not log them"},
	{rooms: adapters, pkg: "log", why: "return errors, do not log them"},
	{claims: []claim{repeatable, pure}, pkg: "os", calls: []string{"Exit"}, why: "only main ends the process"},
	{rooms: adapters, pkg: "os", calls: []string{"Exit"}, why: "only main ends the process"},
}

func TestBannedCalls(t *testing.T) {
	for _, f := range sources(t) {
		names := f.names(t)
		for _, b := range bans {
			if !b.applies(f) {
				continue
			}
			ast.Inspect(f.syntax, func(node ast.Node) bool {
				member, ok := node.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := member.X.(*ast.Ident)
				if ok && pkg.Obj == nil && names[pkg.Name] == b.pkg && b.covers(member.Sel.Name) {
					t.Errorf("%s:%d: %s.%s: %s", f.path, line(node.Pos()), pkg.Name, member.Sel.Name, b.why)
				}
				return true
			})
		}
	}
}

// impurities are the bans that a room without a claim breaks.
func impurities(t *testing.T, r rule) (found []string) {
	for _, f := range sources(t) {
		if own, ok := ruleOf(f.room); !ok || own.room != r.room || f.test {
			continue
		}
		names := f.names(t)
		for _, b := range bans {
			if !slices.Contains(b.claims, pure) {
				continue
			}
			ast.Inspect(f.syntax, func(node ast.Node) bool {
				if member, ok := node.(*ast.SelectorExpr); ok {
					if pkg, ok := member.X.(*ast.Ident); ok && pkg.Obj == nil && names[pkg.Name] == b.pkg && b.covers(member.Sel.Name) {
						found = append(found, b.pkg+"."+member.Sel.Name)
					}
				}
				return true
			})
		}
	}
	return found
}

// A room that keeps all bans of pure rooms says so: then the next change keeps them as well.
func TestPureRoomsClaimIt(t *testing.T) {
	for _, r := range rules {
		if r.claim != pure && !testRoom(r) && len(impurities(t, r)) == 0 {
			t.Errorf("%s has no clock, no randomness, no I/O and no exit: let it claim to be pure", r.room)
		}
	}
}

// applies reports whether a file is one the ban is about.
func (b ban) applies(f file) bool {
	if f.test && !b.tests {
		return false
	}
	if b.claims != nil {
		r, ok := ruleOf(f.room)
		return ok && slices.Contains(b.claims, r.claim)
	}
	if b.alone {
		return slices.Contains(b.rooms, f.room)
	}
	return within(f.room, b.rooms...)
}

// covers reports whether a member of the package is banned.
func (b ban) covers(member string) bool {
	return (b.calls == nil || slices.Contains(b.calls, member)) && !slices.Contains(b.except, member)
}

// The command lines read the wall clock in one place, which hands it on, so that
// every figure that depends on it is known to.
func TestOneWallClock(t *testing.T) {
	clocks := 0
	for _, f := range sources(t) {
		if f.test || f.room != "cmd/lab" && !within(f.room, "app/command", "cmd/headway") {
			continue
		}
		names := f.names(t)
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			member, ok := node.(*ast.SelectorExpr)
			if !ok || member.Sel.Name != "Now" && member.Sel.Name != "Since" && member.Sel.Name != "Until" {
				return true
			}
			if pkg, ok := member.X.(*ast.Ident); ok && names[pkg.Name] == "time" {
				clocks++
				if f.path != "app/command/command.go" {
					t.Errorf("%s:%d: time.%s: use the app's Now", f.path, line(node.Pos()), member.Sel.Name)
				}
			}
			return true
		})
	}
	if clocks != 1 {
		t.Errorf("the command line reads the clock in %d places, want 1", clocks)
	}
}

// The loop is a state machine: nothing in it runs beside anything else.
func TestLoopIsSequential(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || f.room != "loop" {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			found := ""
			switch n := node.(type) {
			case *ast.GoStmt:
				found = "a go statement"
			case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
				found = "a channel"
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					found = "a channel"
				}
			}
			if found != "" {
				t.Errorf("%s:%d: %s in the loop: the same events must give the same actions", f.path, line(node.Pos()), found)
			}
			return true
		})
	}
}

// A map's order is random, so the loop never ranges over one.
func TestLoopRangesOverNoMap(t *testing.T) {
	ranges := 0
	p := typedSources(t)["loop"]
	for _, f := range p.files {
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			statement, ok := node.(*ast.RangeStmt)
			if !ok {
				return true
			}
			ranges++
			if _, ok := p.info.TypeOf(statement.X).Underlying().(*types.Map); ok {
				t.Errorf("%s: ranges over a map, whose order is random: the same events must give the same actions", fileSet.Position(node.Pos()))
			}
			return true
		})
		for _, name := range []string{"Keys", "Values", "All"} {
			if at := callOf(f.syntax, "maps", name); at.IsValid() {
				t.Errorf("%s: maps.%s has a random order", fileSet.Position(at), name)
			}
		}
	}
	if ranges == 0 {
		t.Error("found no range statement at all: is this test looking at the loop?")
	}
}

// callOf returns where a file mentions a member of a package.
func callOf(file *ast.File, pkg, name string) (at token.Pos) {
	ast.Inspect(file, func(node ast.Node) bool {
		if member, ok := node.(*ast.SelectorExpr); ok && member.Sel.Name == name {
			if of, ok := member.X.(*ast.Ident); ok && of.Name == pkg {
				at = node.Pos()
			}
		}
		return true
	})
	return at
}

// Tests wait on signals or on a fake clock, never on the wall clock.
func TestTestsDoNotSleep(t *testing.T) {
	fake := map[string]bool{} // rooms whose tests run in bubbles with a clock of their own
	for _, f := range sources(t) {
		if _, ok := f.names(t)["synctest"]; ok {
			fake[f.room] = true
		}
	}
	for _, f := range sources(t) {
		names := f.names(t)
		if !f.test || fake[f.room] {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			member, ok := node.(*ast.SelectorExpr)
			if !ok || member.Sel.Name != "Sleep" {
				return true
			}
			if pkg, ok := member.X.(*ast.Ident); ok && names[pkg.Name] == "time" {
				t.Errorf("%s:%d: time.Sleep in a test: wait on a signal, or in a testing/synctest bubble", f.path, line(node.Pos()))
			}
			return true
		})
	}
}
