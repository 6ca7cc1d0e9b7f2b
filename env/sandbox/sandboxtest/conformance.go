package sandboxtest

import "testing"

// Conformance runs the suite on a driver. It starts the test's own binary again to have a process
// that makes boxes and is killed. In that process it makes them and never returns.
func Conformance(t *testing.T, subject Subject) {
	makeAndWait(t, subject)
	s := newSuite(t, subject)
	t.Logf("%s: boundary %+v", s.driver.Name(), s.boundary)
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *suite)
	}{
		{"Boundary", testBoundary},
		{"Exit", testExit}, {"Stdin", testStdin}, {"Output", testOutput}, {"Environment", testEnvironment},
		{"Directory", testDirectory}, {"Arguments", testArguments}, {"Refused", testRefused}, {"Descriptors", testDescriptors},
		{"LeftBehind", testLeftBehind},
		{"TimeLimit", testTimeLimit}, {"OutputLimit", testOutputLimit}, {"MemoryLimit", testMemoryLimit},
		{"ProcessLimit", testProcessLimit}, {"DiskLimit", testDiskLimit}, {"FileLimit", testFileLimit}, {"CPULimit", testCPULimit},
		{"Files", testFiles}, {"NoFiles", testNoFiles}, {"Links", testLinks}, {"Mounts", testMounts},
		{"Apart", testApart}, {"Network", testNetwork},
		{"Close", testClose}, {"CloseWhileRunning", testCloseWhileRunning}, {"Cancelled", testCancelled}, {"CreateCancelled", testCreateCancelled},
		{"Reset", testReset}, {"ResetUsed", testResetUsed}, {"Snapshot", testSnapshot},
		{"List", testList}, {"Destroy", testDestroy}, {"ManyAtOnce", testManyAtOnce}, {"MakerKilled", testMakerKilled},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && !concurrent[c.name] {
				t.Skip("its words go one after another: without -short")
			}
			c.test(t, s)
		})
	}
}

// concurrent are the tests in which goroutines meet: with -short these alone are run, as it is for
// the race detector.
var concurrent = map[string]bool{
	"Boundary": true, "Exit": true, "LeftBehind": true, "TimeLimit": true, "Files": true, "Apart": true,
	"Close": true, "CloseWhileRunning": true, "Cancelled": true, "CreateCancelled": true,
	"Destroy": true, "ManyAtOnce": true,
}

// testBoundary: what is missing is said.
func testBoundary(t *testing.T, s *suite) {
	b := s.boundary
	whole := b.Files && b.Processes && b.Network && b.Kernel && b.Memory && b.CPU && b.ProcessCount && b.Disk && b.FileCount
	if whole != (b.Why == "") {
		t.Errorf("boundary %+v: Why is to say what is missing, and nothing where nothing is", b)
	}
	if s.driver.Name() == "" {
		t.Error("the driver has no name")
	}
}
