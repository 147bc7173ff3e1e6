package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ZooKeeperConfig says how to run a ZooKeeper server. The zero value is one on a free port.
type ZooKeeperConfig struct {
	Dir      string    // where its files are kept between runs; empty: a temporary directory, removed by Stop
	Port     int       // on 127.0.0.1; 0: a free one
	Progress io.Writer // gets a line before something takes long, as installing does; nil: nobody does
}

// ZooKeeper is a private ZooKeeper server on loopback, standing alone. It syncs what it acknowledges.
type ZooKeeper struct {
	server
}

// zookeeperTick is ZooKeeper's unit of time. Sessions last from 2 to 20 ticks; tests of a session's end cannot wait
// for the usual 2 s.
const zookeeperTick = 200 * time.Millisecond

// StartZooKeeper runs a ZooKeeper server and returns when it answers. It ends with Stop, with Kill, or with this
// process.
func StartZooKeeper(ctx context.Context, config ZooKeeperConfig) (*ZooKeeper, error) {
	java, err := javaSoftware().find(ctx, config.Progress)
	if err != nil {
		return nil, err
	}
	jars, err := zookeeperSoftware().find(ctx, config.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(config.Dir)
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{server{name: "zookeeper", dir: dir, port: config.Port, quit: syscall.SIGTERM}}
	z.ready = z.answers
	z.program = func() (program, error) {
		return program{path: java.path("java"), args: []string{
			// Small, and quick to start. user.home is how the server tells who it is, see answers.
			"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=" + dir.path,
			"-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true", "-Dorg.slf4j.simpleLogger.showDateTime=true",
			"-cp", classPath(jars.dir), "org.apache.zookeeper.server.quorum.QuorumPeerMain", dir.file("zoo.cfg"),
		}, env: java.env, dir: dir.path}, z.configure()
	}
	if err := z.start(ctx, freePort); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return z, nil
}

// classPath lists the jars that a server standing alone needs. The main one names more of them, at the place where
// they are when they are installed.
func classPath(dir string) string {
	jars := []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java", "commons-io"}
	for i, name := range jars {
		jars[i] = filepath.Join(dir, name+".jar")
	}
	return strings.Join(jars, ":")
}

func (z *ZooKeeper) configure() error {
	config := fmt.Sprintf("dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\ntickTime=%d\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr,envi\n",
		z.dir.file("data"), z.port, zookeeperTick.Milliseconds())
	return os.WriteFile(z.dir.file("zoo.cfg"), []byte(config), 0o644)
}

// answers reports whether this very server, not another that took the port, answers.
func (z *ZooKeeper) answers(context.Context, *process) bool {
	environment, err := z.ask("envi")
	if err != nil || !strings.Contains(environment, "user.home="+z.dir.path+"\n") {
		return false
	}
	status, err := z.ask("srvr") // ruok says yes before requests are served
	return err == nil && strings.Contains(status, "Mode: standalone")
}

// ask sends one of ZooKeeper's four-letter words.
func (z *ZooKeeper) ask(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", z.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 1<<20))
	return string(answer), err
}
