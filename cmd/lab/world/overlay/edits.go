package overlay

// edit replaces one text of a file of Go's library by another. The text occurs once.
type edit struct {
	file, old, new string
}

// edits are all that the world changes in Go's library.
var edits = []edit{
	// Goroutines and timers belong to hosts.
	{"runtime/runtime2.go", "\tbubble  *synctestBubble\n", "\tbubble  *synctestBubble\n\thost    int32 // of the world\n\tputBy   bool  // the world has put it aside\n"},
	{"runtime/proc.go", "\tnewg.parentGoid = callergp.goid\n", "\tnewg.parentGoid = callergp.goid\n\tnewg.host = callergp.host\n\tnewg.putBy = false\n"},
	{"runtime/proc.go", "\tif sched.disable.user && !schedEnabled(gp) {\n\t\t// Scheduling of", "\tworldPick(gp)\n\tif worldHolds(gp) {\n\t\tgoto top\n\t}\n\n\tif sched.disable.user && !schedEnabled(gp) {\n\t\t// Scheduling of"},
	{"runtime/proc.go", "\t\tcase _Grunnable,\n\t\t\t_Grunning,\n\t\t\t_Gsyscall:\n\t\t\tprint(\"runtime: checkdead: find g \"", "\t\tcase _Grunnable,\n\t\t\t_Grunning,\n\t\t\t_Gsyscall:\n\t\t\tif gp.putBy {\n\t\t\t\tgrunning++\n\t\t\t\treturn\n\t\t\t}\n\t\t\tprint(\"runtime: checkdead: find g \""},
	{"runtime/time.go", "\tblocked uint32 // number of goroutines blocked on timer's channel\n", "\thost    int32  // of the world\n\tblocked uint32 // number of goroutines blocked on timer's channel\n"},
	{"runtime/time.go", "\tif bubble := getg().bubble; bubble != nil {\n\t\tt.isFake = true\n\t}\n\tt.modify(when, period, f, arg, 0)\n", "\tif bubble := getg().bubble; bubble != nil {\n\t\tt.isFake = true\n\t}\n\tt.host = getg().host\n\tt.modify(when, period, f, arg, 0)\n"},
	{"runtime/time.go", "\tf := t.f\n\targ := t.arg\n\tseq := t.seq\n\tvar next int64\n", "\tif worldGone(t.host) {\n\t\tt.f, t.period = worldNothing, 0\n\t}\n\tf := t.f\n\targ := t.arg\n\tseq := t.seq\n\tvar next int64\n"},
	{"runtime/time.go", "\tf(arg, seq, delay)\n", "\tworldWas := getg().host\n\tgetg().host = t.host\n\tf(arg, seq, delay)\n\tgetg().host = worldWas\n"},
	{"runtime/proc.go", "\tif !iscgo && cgoHasExtraM && extraMLength.Load() > 0 {\n", "\tif cgoHasExtraM && extraMLength.Load() > 0 {\n"},
	// One thread decides, in an order drawn by the seed.
	{"runtime/proc.go", "\nfunc LockOSThread() {\n", "\nfunc LockOSThread() {\n\tif true {\n\t\treturn\n\t}\n"},
	{"runtime/proc.go", "\nfunc UnlockOSThread() {\n", "\nfunc UnlockOSThread() {\n\tif true {\n\t\treturn\n\t}\n"},
	{"runtime/proc.go", "\nfunc lockOSThread() {\n", "\nfunc lockOSThread() {\n\tif true {\n\t\treturn\n\t}\n"},
	{"runtime/proc.go", "\nfunc unlockOSThread() {\n", "\nfunc unlockOSThread() {\n\tif true {\n\t\treturn\n\t}\n"},
	{"runtime/proc.go", "const haveSysmon = GOARCH != \"wasm\"\n", "const haveSysmon = false\n"},
	{"runtime/proc.go", "const randomizeScheduler = raceenabled\n", "const randomizeScheduler = true\n"},
	{"runtime/proc.go", "\tif !haveSysmon && next {\n", "\tif false && next {\n"},
	{"runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n\tfor {\n", "\tmp := getg().m\n\tc := &worldChaCha\n\tfor {\n"},
	{"runtime/select.go", "\t\tj := cheaprandn(uint32(norder + 1))\n", "\t\tj := worldCheap(uint32(norder + 1))\n"},
	{"runtime/debug.go", "\treturn int(numCPUStartup)\n", "\treturn 4\n"},
	{"runtime/rand.go", "\tglobalRand.state.Init(*seed)\n", "\tclear(seed[:])\n\tglobalRand.state.Init(*seed)\n"},
	{"runtime/rand.go", "\tmp.chacha8.Init64(seed)\n\tmp.cheaprand = rand()\n", "\tmp.chacha8.Init64(seed)\n\tworldSeedOnce()\n"},
	{"crypto/internal/sysrand/rand.go", "func Read(b []byte) {\n", "func Read(b []byte) {\n\tif worldRead(b) {\n\t\treturn\n\t}\n"},
	// Time moves on without a look at every goroutine, which finds that none can run: a timer is due.
	{"runtime/proc.go", "\tgrunning := 0\n\tforEachG(func(gp *g) {\n", "\tgrunning := 0\n\tif timeSleepUntil() < maxWhen {\n\t\tgrunning = 1\n\t} else {\n\tforEachG(func(gp *g) {\n"},
	{"runtime/proc.go", "\t})\n\tif grunning == 0 {", "\t})\n\t}\n\tif grunning == 0 {"},
	// What a process asks of its machine.
	{"syscall/zsyscall_linux_amd64.go", "func Getpid() (pid int) {\n", "func Getpid() (pid int) {\n\tif p := worldPid(); p != 0 {\n\t\treturn p\n\t}\n"},
	{"syscall/zsyscall_linux_amd64.go", "func openat(dirfd int, path string, flags int, mode uint32) (fd int, err error) {\n", "func plainOpenat(dirfd int, path string, flags int, mode uint32) (fd int, err error) {\n"},
	{"syscall/zsyscall_linux_amd64.go", "func write(fd int, p []byte) (n int, err error) {\n", "func write(fd int, p []byte) (n int, err error) {\n\tif World != nil {\n\t\tif err := World.Write(fd, p, -1); err != nil {\n\t\t\treturn 0, err\n\t\t}\n\t}\n"},
	{"syscall/zsyscall_linux_amd64.go", "func pwrite(fd int, p []byte, offset int64) (n int, err error) {\n", "func pwrite(fd int, p []byte, offset int64) (n int, err error) {\n\tif World != nil {\n\t\tif err := World.Write(fd, p, offset); err != nil {\n\t\t\treturn 0, err\n\t\t}\n\t}\n"},
	{"syscall/zsyscall_linux_amd64.go", "func Fsync(fd int) (err error) {\n", "func Fsync(fd int) (err error) {\n\tif World != nil {\n\t\treturn World.Sync(fd)\n\t}\n"},
	{"syscall/zsyscall_linux_amd64.go", "func Fdatasync(fd int) (err error) {\n", "func Fdatasync(fd int) (err error) {\n\tif World != nil {\n\t\treturn World.Sync(fd)\n\t}\n"},
	{"syscall/zsyscall_linux_amd64.go", "func Ftruncate(fd int, length int64) (err error) {\n", "func Ftruncate(fd int, length int64) (err error) {\n\tif World != nil {\n\t\tif err := World.Truncate(fd, length); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n"},
	{"syscall/zsyscall_linux_amd64.go", "func Close(fd int) (err error) {\n", "func Close(fd int) (err error) {\n\tif World != nil {\n\t\tWorld.Closed(fd)\n\t}\n"},
	{"syscall/zsyscall_linux_amd64.go", "func Statfs(path string, buf *Statfs_t) (err error) {\n", "func Statfs(path string, buf *Statfs_t) (err error) {\n\tif World != nil {\n\t\tdefer World.Room(buf)\n\t}\n"},
	{"os/stat_linux.go", "\tfs.modTime = time.Unix(fs.sys.Mtim.Unix())\n", "\tfs.modTime = time.Unix(1767225600, 0)\n"},
	{"os/sys_linux.go", "func hostname() (name string, err error) {\n", "func hostname() (name string, err error) {\n\tif name := worldHostname(); name != \"\" {\n\t\treturn name, nil\n\t}\n"},
	{"net/dial.go", "func (d *Dialer) DialContext(ctx context.Context, network, address string) (Conn, error) {\n\tctx, cancel := d.dialCtx(ctx)\n\tdefer cancel()\n", "func (d *Dialer) DialContext(ctx context.Context, network, address string) (Conn, error) {\n\tctx, cancel := d.dialCtx(ctx)\n\tdefer cancel()\n\tif WorldDial != nil {\n\t\treturn WorldDial(ctx, network, address)\n\t}\n"},
	{"net/dial.go", "func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {\n", "func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {\n\tif WorldListen != nil {\n\t\treturn WorldListen(network, address)\n\t}\n"},
}

// added are files that the world adds to Go's library, or puts in the place of others.
var added = map[string]string{
	"runtime/time_fake.go":                  timeFake,
	"runtime/world.go":                      runtimeWorld,
	"syscall/time_fake.go":                  syscallFake,
	"syscall/world.go":                      syscallWorld,
	"os/world.go":                           osWorld,
	"net/world.go":                          netWorld,
	"crypto/internal/sysrand/rand_world.go": sysrandWorld,
}
