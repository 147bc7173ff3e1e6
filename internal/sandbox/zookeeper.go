package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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
			"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Duser.home=" + dir.path,
			"-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true",
			"-Dlog4j.configuration=file:" + dir.file("log4j.properties"),
			"-cp", jars.path("zookeeper.jar"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", dir.file("zoo.cfg"),
		}, env: java.env, dir: dir.path}, z.configure()
	}
	if err := z.start(ctx); err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return z, nil
}

func (z *ZooKeeper) configure() error {
	config := fmt.Sprintf("dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\ntickTime=%d\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr,envi\n",
		z.dir.file("data"), z.port, zookeeperTick.Milliseconds())
	const logging = "log4j.rootLogger=INFO, CONSOLE\n" +
		"log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout\n" +
		"log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %-5p %c{1} %m%n\n"
	return errors.Join(
		os.WriteFile(z.dir.file("zoo.cfg"), []byte(config), 0o644),
		os.WriteFile(z.dir.file("log4j.properties"), []byte(logging), 0o644))
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
