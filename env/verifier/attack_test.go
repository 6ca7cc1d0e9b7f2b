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
