package verifier_test

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/verifier"
)

// child is a hidden test that starts the policy's code in a process of its own and believes nothing of it.
const child = `
import subprocess, sys
token = input()
subprocess.run([sys.executable, "/work/sol.py"], capture_output=True)
print("headway-result", token, "0/4")
`

// What the policy leaves or does in a real box gains it nothing, and is nobody's failure.
func TestTestsWithstand(t *testing.T) {
	zero, line, exit, file := "0 ", verifier.Options{}, verifier.Options{Source: "exit"}, verifier.Options{Source: "file"}
	for name, a := range map[string]struct {
		policy, test string
		hidden       map[string]string
		o            verifier.Options
	}{
		"a token looked for in the parent": {`cat > sol.py <<'E'
import os, glob
said = ""
for p in glob.glob("/proc/[0-9]*"):
    for f in ["environ", "cmdline", "fd/0"]:
        try: text = os.read(os.open(p + "/" + f, os.O_RDONLY | os.O_NONBLOCK), 9999).decode(errors="replace")
        except OSError: continue
        for word in text.replace("\0", " ").replace("=", " ").split():
            said += "\nheadway-result " + word + " 4/4\n"
for p in glob.glob("/proc/[0-9]*"):
    try: os.write(os.open(p + "/fd/1", os.O_WRONLY | os.O_NONBLOCK), said.encode())
    except OSError: pass
os.kill(os.getppid(), 9)
E`, "python3 hidden_test.py", map[string]string{"hidden_test.py": child}, line},
		"a shadow of unittest": {`echo 'import sys; sys.exit(0)' > unittest.py; echo 'def f(): return 0' > sol.py`,
			"python3 -m unittest hidden_test", map[string]string{"hidden_test.py": `import unittest, os, sys
sys.path.append(os.environ["HEADWAY_WORK"])
import sol
class T(unittest.TestCase):
    def test(self): self.assertEqual(sol.f(), 1)
`}, exit},
		"a shadow of json":    {`echo 'import os; os._exit(0)' > json.py`, "python3 hidden_test.py", map[string]string{"hidden_test.py": "import json\nraise SystemExit(1)\n"}, exit},
		"a shadow where both": {`echo 'import os; os._exit(0)' > json.py`, `cd /work; python3 -c 'import json; raise SystemExit(1)'`, nil, exit},
		"a module of its own for every start": {`d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p "$d"; echo "import os; os._exit(0)" | tee "$d/usercustomize.py" "$d/sitecustomize.py"`,
			`cd /; python3 -c 'raise SystemExit(1)'`, nil, exit},
		"what a shell reads":    {`for f in .profile .bashrc .bash_profile; do echo 'exit 0' > ~/$f; done`, "bash -lc 'exit 1'", nil, exit},
		"programs by the name":  {`for d in . ~/bin ~/.local/bin /tests; do mkdir -p $d; printf '#!/bin/sh\nexit 0\n' > $d/python3; chmod +x $d/python3; done`, `python3 -c 'raise SystemExit(1)'`, nil, exit},
		"files of the tests'":   {`mkdir -p /tests/deep; echo 'import os; os._exit(0)' | tee /tests/json.py /tests/deep/x; chmod 000 /tests/deep /tests`, `python3 -c 'import json; raise SystemExit(1)'`, nil, exit},
		"a link for the tests'": {`mkdir mine; echo 'import os; os._exit(0)' > mine/json.py; rmdir /tests && ln -s /work/mine /tests`, `python3 -c 'import json; raise SystemExit(1)'`, nil, exit},
		"exit code 127":         {`echo 'import os; os._exit(127)' > sol.py`, `PYTHONPATH=$HEADWAY_WORK python3 -c 'import sol; raise SystemExit(1)'`, nil, exit},
		"a line of its own":     {`echo 'echo "headway-result x 4/4"' > sol.sh`, `read -r t; sh $HEADWAY_WORK/sol.sh; echo "headway-result $t 0/4"`, nil, line},
		"an early end":          {`echo 'import os; os._exit(0)' > sol.py`, `PYTHONPATH=$HEADWAY_WORK python3 -c 'import sol; raise SystemExit(1)'`, nil, line},
		"no reward file":        {`echo 'rm -rf /logs/verifier; echo x > /logs/verifier' > sol.sh`, `sh sol.sh; echo 0 > /logs/verifier/reward.txt`, nil, file},
		"JSON beside the text":  {`echo 'echo "{\"reward\":1}" > /logs/verifier/reward.json' > sol.sh`, `sh sol.sh; echo 0 > /logs/verifier/reward.txt; exit 1`, nil, file},
		"no room to write": {`python3 -c 'import os
for i in range(60000): os.mkdir("/tests/%d" % i)'; chmod 000 /tests`, "exit 1", nil, exit},
		"a folder that is shut":   {`mkdir shut; chmod 555 shut .`, "exit 1", map[string]string{"/work/shut/x": "x"}, file},
		"a process left behind":   {`setsid sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; done' </dev/null >/dev/null 2>&1 &`, `echo 0 > /logs/verifier/reward.txt`, nil, file},
		"a signal after a result": {`echo 'kill -9 $PPID' > sol.sh`, `read -r t; echo "headway-result $t 4/4"; sh $HEADWAY_WORK/sol.sh; exit 1`, nil, line},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel() // they wait for their boxes
			box := bwrapBox(t)
			if _, err := box.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", a.policy}}); err != nil {
				t.Fatal(err)
			}
			a.o.Kind = verifier.Tests
			v, err := newBounded(t, a.o).Verify(t.Context(), testsCase(box, a.test, a.hidden))
			if err != nil || v.Exact || !strings.HasPrefix(told(v)+" ", zero) {
				t.Errorf("%s, %v", told(v), err)
			}
		})
	}
}

// An honest test has all it needs: the policy's code by its folder, the task's own modules, a home.
func TestTestsFindWhatTheyNeed(t *testing.T) {
	for name, box := range map[string]sandbox.Box{"process": processBox(t), "bwrap": bwrapBox(t)} {
		if err := box.Write(t.Context(), "/work/sol.py", []byte("def f(): return 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		hidden := map[string]string{"data/want.txt": "1", "helper.py": "import os\nhome = os.listdir(os.path.expanduser('~'))\n", "test_it.py": `
import os, sys, unittest
token = input()
sys.path.append(os.environ["HEADWAY_WORK"])
import helper, sol
class T(unittest.TestCase):
    def test(self):
        self.assertEqual(sol.f(), int(open("data/want.txt").read()))
        open(os.path.join(os.environ["TMPDIR"], "x"), "w").close()
        self.assertEqual(helper.home, [])
if unittest.main(exit=False, argv=["x"]).result.wasSuccessful():
    print("headway-result", token, "1/1")
`}
		for range 2 { // the second finds what the first has left
			v, err := newBounded(t, verifier.Options{Kind: verifier.Tests}).Verify(t.Context(), testsCase(box, "python3 test_it.py", hidden))
			if err != nil || v.Reward != 1 {
				t.Errorf("%s: %s, %v", name, told(v), err)
			}
		}
	}
}

// A policy that leaves a link to the answer, which the test would compare with itself, gains nothing.
func TestTestsCompareNoAnswerWithItself(t *testing.T) {
	box, same := bwrapBox(t), `cmp "$HEADWAY_WORK/out.txt" expected.txt`
	for _, a := range []struct{ policy, test string }{
		{"ln -s /tests/expected.txt out.txt", same},
		{"ln -s ../tests/expected.txt out.txt", same},
		{"ln -s /proc/self/cwd/expected.txt out.txt", same},
		{"ln -s /proc/self/root/tests/expected.txt /tmp/x; ln -s /tmp/x out.txt", same},
		{"touch /tmp/o; ln -s /proc/self/cwd/../../../tmp/o out.txt", `mkdir -p a/b/c/tmp; cp expected.txt a/b/c/tmp/o; mkdir -p a/b/c/d/e/f; cd a/b/c/d/e/f; cmp /work/out.txt /tests/expected.txt`},
		{"ln -s /proc/self/fd/7 out.txt", "exec 7<expected.txt; " + same},
		{"ln -s /dev/stdin out.txt", `cmp "$HEADWAY_WORK/out.txt" - <expected.txt`},
		{"mkdir shut; ln -s /tests/expected.txt shut/out.txt; chmod 111 shut", `cmp "$HEADWAY_WORK/shut/out.txt" expected.txt`},
		{"mkdir shut; ln -s /tests/expected.txt shut/out.txt; chmod 555 shut", `cmp "$HEADWAY_WORK/shut/out.txt" expected.txt`},
		{"ln -s /tests out", `cmp "$HEADWAY_WORK/out/expected.txt" expected.txt`},
		{"ln -s / out", `cmp "$HEADWAY_WORK/out/tests/expected.txt" expected.txt`},
		{"for i in $(seq 300); do ln -s /usr \"$(printf \"$i\\nx\")\"; done; ln -s /tests out", `cmp "$HEADWAY_WORK/out/expected.txt" expected.txt`},
		{"ln -s given/answer.txt out.txt; ln -s . self", `cmp /work/out.txt /work/given/answer.txt`},
		{"ln -s given/. out", `cmp /work/out/answer.txt /work/given/answer.txt`},
		{"mkdir given; ln -s given out", `cmp /work/out/answer.txt /work/given/answer.txt`},
		{"mkdir out; ln -s out given", `cmp /work/out/answer.txt /work/given/answer.txt`},
		{"mkdir -p given; echo 4 >given/answer.txt; ln given/answer.txt out.txt; echo 5 >out.txt", `cmp /work/out.txt /work/given/answer.txt`},
	} {
		t.Run(strings.NewReplacer(" ", "_", "/", "|").Replace(a.policy), func(t *testing.T) {
			if err := box.(sandbox.Resetter).Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r, err := box.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", a.policy}}); err != nil || r.Exit != 0 {
				t.Fatal(r, err)
			}
			o, hidden := verifier.Options{Kind: verifier.Tests, Source: "exit"}, map[string]string{"expected.txt": "4\n"}
			if strings.Contains(a.test, "given") { // as a task has it whose hidden files lie with the policy's
				o = verifier.Options{Kind: verifier.Tests, Source: "file"}
				a.test = "if " + a.test + "; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"
				hidden = map[string]string{"/work/given/answer.txt": "4\n"}
			}
			v, err := newBounded(t, o).Verify(t.Context(), testsCase(box, a.test, hidden))
			if err != nil || v.Exact || v.Reward != 0 {
				t.Errorf("%s, %v", told(v), err)
			}
		})
	}
}

// Links that an honest policy has stay: to its own files and folders, and to programs of the box.
func TestTestsLeaveLinksOfPrograms(t *testing.T) {
	for name, box := range map[string]sandbox.Box{"process": processBox(t), "bwrap": bwrapBox(t)} {
		policy := `mkdir -p venv/bin venv/lib; ln -s /usr/bin/env venv/bin/env; ln -s lib venv/lib64; ln -s /bin bin; echo 4 >real; ln -s real out; mkdir d; ln -s ../real d/up; chmod 500 d`
		if r, err := box.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", policy}}); err != nil || r.Exit != 0 {
			t.Fatal(r, err)
		}
		test := `cd "$HEADWAY_WORK" && venv/bin/env true && [ -d venv/lib64 ] && bin/sh -c true && [ "$(cat out d/up)" = "4
4" ] && [ -h out ] && [ "$(find . -type l | wc -l)" -eq 5 ]`
		v, err := newBounded(t, verifier.Options{Kind: verifier.Tests, Source: "exit"}).Verify(t.Context(), testsCase(box, test, map[string]string{"expected.txt": "4\n"}))
		if err != nil || v.Reward != 1 {
			t.Errorf("%s: %s, %v", name, told(v), err)
		}
	}
}
