package periodic

import (
	"os"
	"strings"
)

// machine identifies a clock: all processes with this clock have the same id.
type machine struct {
	id   string
	host string // for the log: the host's name, which is the pod's in Kubernetes
}

// bootID is a file of Linux. All containers on a kernel read the same in it, and share its clock.
// It is another one after a reboot: see witnessed.
const bootID = "/proc/sys/kernel/random/boot_id"

// machineBy returns this machine: by the file, or by the host's name where there is no such file. A
// name that two machines share makes them one, so that they agree upon no time.
func machineBy(file string, hostname func() (string, error)) machine {
	host, err := hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	text, _ := os.ReadFile(file)
	if id := strings.TrimSpace(string(text)); id != "" {
		return machine{id, host}
	}
	return machine{host, host}
}
