package verifier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
)

// testsDir is where tests begin and lie in a box with files of its own, testsBelow in one of plain processes.
const (
	testsDir   = "/tests"
	testsBelow = sandbox.Work + "/.headway-tests"
)

// testPath is where the programs of tests are looked for: never where the policy may write.
const testPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// testRun is one test in a box.
type testRun struct {
	box             sandbox.Box
	source          string
	rewardDir, test string
	hidden          map[string][]byte
	wants           taskset.Wants
	// dir is where the task's own files lie, real as the box's programs name it; work is the policy's.
	dir, real, work string
}

// begin empties the folder of tests and says where it is and where commands begin. A box without files of
// its own has it below Work, as an absolute path would be the host's. Links are removed, never followed.
const begin = `work=$(pwd -P)
dir=` + testsDir + `
[ -h "$dir" ] || chmod u+rwx "$dir" 2>/dev/null
if [ "$work" != ` + sandbox.Work + ` ] || { [ -h "$dir" ] && ! rm -f "$dir"; } || ! mkdir -p "$dir" 2>/dev/null || ! [ -w "$dir" ]; then
  dir=$work/.headway-tests
  [ -d "$dir" ] && [ ! -h "$dir" ] && chmod -R u+rwx "$dir"
  rm -rf "$dir"; mkdir "$dir" || exit 1
fi
chmod -R u+rwx "$dir" 2>/dev/null
find "$dir" -mindepth 1 -maxdepth 1 -exec rm -rf {} + || exit 1
mkdir "$dir/.home" "$dir/.tmp" || exit 1
printf '%s\n%s\n' "$work" "$dir"`

// clear removes old rewards and whatever lies where hidden files go, and makes the folder of rewards. A
// file in place of a folder goes, too, and below Work a link in place of one. Arguments are that folder and the files, from where commands
// begin or absolute. Where that is not Work the box has no files of its own: an absolute path would be
// the host's, and nothing is touched.
const clear = `for file do
  case $file in
  ''|./*) ;;
  *) [ "$(pwd -P)" = ` + sandbox.Work + ` ] || { echo "$file: this sandbox has no files of its own outside of ` + sandbox.Work + `" >&2; exit 64; } ;;
  esac
done
rewards=$1
for file do
  folder=${file%/*}
  while [ -n "$folder" ] && [ "$folder" != . ]; do
    case $folder in ./*) [ ! -h "$folder" ] || rm -f -- "$folder" ;; esac
    [ -d "$folder" ] || rm -f -- "$folder"
    folder=${folder%/*}
  done
  [ -d "$file" ] && [ ! -h "$file" ] && chmod -R u+rwx -- "$file"
  rm -rf -- "$file"
done
[ -z "$rewards" ] || mkdir -p -- "$rewards"`

// unlink removes links of the policy's that a test may follow to the answer it compares them with. Such a
// link leads nowhere yet, to a folder that hidden files will lie in or below, or to what a process has open
// or where it is (/proc, /dev). Links to programs stay. It runs in a folder that is gone, so that no link by
// way of its own place leads anywhere. The folders are a variable, one a line. It fails where a link stays.
const unlink = `mkdir "$dir/.gone" && cd "$dir/.gone" && rmdir "$dir/.gone" || exit 1
IFS='
'
set -f
folders=$dir$IFS$(for folder in $folders; do readlink -f -- "$folder" || printf '%s\n' "$folder"; done)
remove='remove() { rm -f -- "$1" || { chmod u+w -- "${1%/*}" && rm -f -- "$1"; } || echo stays; }
'
stay=$(find "$work" -type d ! -perm -500 -exec chmod u+rx {} \; -o -type l -exec /bin/sh -c "$remove"'
for link do [ -e "$link" ] || remove "$link"; done' links {} +)
stay=$stay$(find "$work" -type l -exec /bin/sh -c "$remove"'
IFS="
"
set -f
wrong() {
  to=$(readlink -f -- "$@") || return 0
  for to in $to; do
    case $to in /|"$dir"/*|/proc|/proc/*|/dev|/dev/*) return 0 ;; esac
    for folder in $folders; do
      case $folder/ in "$to"/*) return 0 ;; esac
    done
  done
  return 1
}
wrong "$@" || exit 0
for link do ! wrong "$link" || remove "$link"; done' links {} +)
[ -z "$stay" ]`

// give hands the token on by a pipe, and keeps it in no file and no environment that others could open.
const give = `read -r token
exec </dev/null
printf '%s\n' "$token" | exec /bin/sh -c "$1"`

// prepare puts the hidden files in their place. What the policy did that makes that impossible is the
// limit it met.
func (r *testRun) prepare(ctx context.Context) (met sandbox.Class, err error) {
	for name := range r.hidden {
		if at := inBox(name); at == sandbox.Work || at == "/" || at == testsDir {
			return "", sandbox.Fail(sandbox.BadTask, "verify", r.box.ID(), "a hidden file of the task is named %q, which is no file", name)
		}
	}
	for _, step := range []func(context.Context) (sandbox.Class, error){r.begin, r.clear, r.unlink, r.write, r.probe} {
		if met, err = step(ctx); err != nil || met != "" {
			return met, err
		}
	}
	return "", nil
}

// impossible is the exit code of clear where it is the task that asks for what cannot be.
const impossible = 64

// ran runs a command of the verifier's own, and says what the policy left that it cannot run for.
func (r *testRun) ran(ctx context.Context, command sandbox.Command) (sandbox.Result, sandbox.Class, error) {
	result, err := r.box.Run(ctx, command)
	switch {
	case err != nil || result.Limit != "":
		return result, result.Limit, err
	case result.Signal != "": // nothing of the policy's runs by now: the machine did it
		return result, "", sandbox.Fail(sandbox.Lost, "verify", r.box.ID(), "the shell that prepares the tests was ended by %s, which no command here sends", result.Signal)
	case result.Exit == impossible:
		return result, "", sandbox.Fail(sandbox.Refused, "verify", r.box.ID(), "hidden files and rewards have no place in this sandbox: %s", clip(string(result.Stderr), 300))
	case result.Exit != 0:
		return result, Tampered, nil
	}
	return result, "", nil
}

func (r *testRun) begin(ctx context.Context) (sandbox.Class, error) {
	result, met, err := r.ran(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", begin}})
	if err != nil || met != "" {
		return met, err
	}
	work, dir, ok := strings.Cut(strings.TrimSuffix(string(result.Stdout), "\n"), "\n")
	if !ok {
		return "", sandbox.Fail(sandbox.Protocol, "verify", r.box.ID(), "the sandbox's shell said %.100q of where it is", result.Stdout)
	}
	r.work, r.real, r.dir = work, dir, testsDir
	if dir != testsDir {
		r.dir = testsBelow
	}
	return "", nil
}

func (r *testRun) clear(ctx context.Context) (sandbox.Class, error) {
	rewards := ""
	if r.source == SourceFile {
		rewards = fromWork(r.rewardDir)
	}
	for rest := r.names(); len(rest) > 0 || rewards != ""; rewards = "" {
		some := rest[:min(len(rest), 200)]
		rest = rest[len(some):]
		argv := []string{"/bin/sh", "-c", clear, "clear", rewards}
		for _, name := range some {
			argv = append(argv, fromWork(r.place(name)))
		}
		if _, met, err := r.ran(ctx, sandbox.Command{Argv: argv}); err != nil || met != "" {
			return met, err
		}
	}
	return "", nil
}

func (r *testRun) unlink(ctx context.Context) (sandbox.Class, error) {
	folders := map[string]bool{"": true} // the tests' own is always one
	for name := range r.hidden {
		at := path.Dir(r.place(name))
		if at == r.dir || strings.HasPrefix(at, r.dir+"/") {
			continue
		}
		if below, ok := strings.CutPrefix(at+"/", sandbox.Work+"/"); ok {
			at = path.Join(r.work, below)
		}
		folders[at] = true
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(folders)), 200) {
		env := map[string]string{"work": r.work, "dir": r.real, "folders": strings.Join(some, "\n")}
		if _, met, err := r.ran(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", unlink}, Env: env}); err != nil || met != "" {
			return met, err
		}
	}
	return "", nil
}

func (r *testRun) names() []string { return slices.Sorted(maps.Keys(r.hidden)) }

func (r *testRun) write(ctx context.Context) (sandbox.Class, error) {
	for _, name := range r.names() {
		content := r.hidden[name]
		if err := r.box.Write(ctx, r.place(name), content, sandbox.ModeOf(content)); err != nil {
			class := sandbox.ClassOf(err)
			switch {
			case class.Kind().Limit:
				return class, nil
			case r.policys(name) && (class == sandbox.Refused || errors.Is(err, fs.ErrInvalid)):
				return Tampered, nil
			}
			return "", fmt.Errorf("the hidden file %s cannot be put into the sandbox: %w", name, err)
		}
	}
	return "", nil
}

// policys reports whether a hidden file lies where the policy may have put something in its way.
func (r *testRun) policys(name string) bool {
	at := r.place(name)
	return strings.HasPrefix(at, sandbox.Work+"/") || strings.HasPrefix(at, testsDir+"/")
}

// plainWord is a command's name without anything that a shell would make something else of.
var plainWord = regexp.MustCompile(`^\s*([A-Za-z0-9_./+-]+)(\s|$)`)

// probe says that a test's program is missing before anything of the policy's runs: an exit code of 126
// or 127 is the policy's own from then on.
func (r *testRun) probe(ctx context.Context) (sandbox.Class, error) {
	word := plainWord.FindStringSubmatch(r.test)
	if word == nil || strings.HasPrefix(inBox(word[1]), sandbox.Work+"/") && path.IsAbs(word[1]) {
		return "", nil
	}
	command := r.bare()
	command.Argv = []string{"/bin/sh", "-c", `command -v -- "$1" >/dev/null`, "probe", word[1]}
	result, err := r.box.Run(ctx, command)
	if err != nil || result.Limit != "" {
		return result.Limit, err
	}
	if result.Exit != 0 {
		return "", sandbox.Fail(sandbox.VerifierCrash, "verify", r.box.ID(), "the shell cannot run the test: there is no %s: %s", word[1], clip(string(result.Stderr), 300))
	}
	return "", nil
}

// bare is a command in the surroundings of tests.
func (r *testRun) bare() sandbox.Command {
	command := sandbox.Command{Dir: r.dir, Env: map[string]string{}}
	maps.Copy(command.Env, r.wants.Env)
	maps.Copy(command.Env, map[string]string{
		"PATH": testPath, WorkVariable: r.work,
		"PYTHONPATH": r.real, "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1",
	})
	if r.dir == testsDir { // plain processes are known by their HOME
		command.Env["HOME"], command.Env["TMPDIR"] = testsDir+"/.home", testsDir+"/.tmp"
	}
	if r.source == SourceFile { // Harbor's tests begin where the policy did
		command.Dir = ""
	}
	maps.Copy(command.Env, r.wants.VerifierEnv)
	command.Time = time.Duration(r.wants.VerifierTimeoutS * float64(time.Second))
	return command
}

// command is the test. Only a result line needs a token, and nothing else is given one.
func (r *testRun) command(token string) sandbox.Command {
	command := r.bare()
	command.Argv = []string{"/bin/sh", "-c", r.test}
	if r.source == SourceLine {
		command.Argv = []string{"/bin/sh", "-c", give, "give", r.test}
		command.Stdin = []byte(token + "\n")
	}
	return command
}

// place is where a hidden file lies in the box: what is below Work comes to the tests' own folder, unless
// tests begin in Work.
func (r *testRun) place(name string) string {
	at := inBox(name)
	below, isBelow := strings.CutPrefix(at, sandbox.Work+"/")
	if isBelow && r.source != SourceFile {
		return path.Join(r.dir, below)
	}
	return at
}

// fromWork is a path as commands have it, from Work or absolute.
func fromWork(name string) string {
	if below, ok := strings.CutPrefix(inBox(name), sandbox.Work+"/"); ok {
		return "./" + below
	}
	return inBox(name)
}

func inBox(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(sandbox.Work, name)
}
