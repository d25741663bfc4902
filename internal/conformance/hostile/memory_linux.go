package hostile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// resident returns the resident bytes of a process, now and at their peak, or -1.
func resident(pid string) (now, peak int64) {
	data, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return -1, -1
	}
	now, peak = -1, -1
	for line := range bytes.Lines(data) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != "VmRSS" && name != "VmHWM" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			continue
		}
		if name == "VmRSS" {
			now = kib << 10
		} else {
			peak = kib << 10
		}
	}
	return now, peak
}

// residentOf returns the resident bytes of another process, or -1.
func residentOf(pid int) int64 {
	now, _ := resident(fmt.Sprint(pid))
	return now
}

func residentSelf() int64 {
	now, _ := resident("self")
	return now
}

// forgetPeak makes residentPeak begin anew. It reports whether it could.
func forgetPeak() bool { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil }

func residentPeak() int64 {
	_, peak := resident("self")
	return peak
}
