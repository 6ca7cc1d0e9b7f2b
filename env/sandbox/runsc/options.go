package runsc

// Options of a driver.
type Options struct {
	// Program is gVisor's runsc; empty looks for it on the PATH and where `make sandboxes` puts it.
	Program string
	// Dir is where boxes lie, of all processes of this user that are to know each other's; empty is
	// host.DefaultDir.
	Dir string
	// Platform is how gVisor catches system calls: systrap (the default), kvm or ptrace.
	Platform string
}
