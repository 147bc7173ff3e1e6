package bench

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Exec runs somebody else's load generator against a service, which it finds in HOLDFAST_URL (a URL for each process, with commas
// between) and HOLDFAST_TOKEN. The cost is told whatever came of it.
func (s *Stack) Exec(service *Service, cmd *exec.Cmd) (Cost, error) {
	urls := make([]string, len(service.Addrs))
	for i, addr := range service.Addrs {
		urls[i] = "http://" + addr
	}
	cmd.Env = append(cmd.Environ(), "HOLDFAST_URL="+strings.Join(urls, ","), "HOLDFAST_TOKEN="+s.Token)
	start := s.usage(service)
	err := cmd.Run()
	cost := s.usage(service).since(start)
	if cmd.ProcessState != nil {
		cost.Generator = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return cost, err
}

// String tells who used how much, in a line.
func (c Cost) String() string {
	total := c.Generator + c.Service + c.Redis + c.Postgres
	if total == 0 {
		return "cpu: not known here"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "cpu: %.1f s", total.Seconds())
	for _, by := range c.consumers() {
		fmt.Fprintf(&text, ", %s %.1f s (%.0f %%)", by.name, by.used.Seconds(), by.used.Seconds()/total.Seconds()*100)
	}
	return text.String()
}

// consumer of CPU time.
type consumer struct {
	name string
	used time.Duration
}

// consumers in the order in which they are told.
func (c Cost) consumers() [4]consumer {
	return [4]consumer{{"load generator", c.Generator}, {"service", c.Service}, {"Redis", c.Redis}, {"Postgres", c.Postgres}}
}
