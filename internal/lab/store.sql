-- What the experiments write to: a register that a lock is meant to guard. `token` is the newest fencing token that
-- was claimed, `version` the number of writes.
CREATE TABLE register (
    name    text   PRIMARY KEY,
    writer  text   NOT NULL DEFAULT '',
    token   bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0
);

-- Every write that was accepted, in order.
CREATE TABLE writes (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   text   NOT NULL,
    writer text   NOT NULL,
    token  bigint NOT NULL
);

-- Stock that the experiments about overselling sell.
CREATE TABLE stock (
    name    text   PRIMARY KEY,
    on_hand bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    checked bigint, -- as on_hand, where the row is one that the CHECK guards
    CONSTRAINT stock_checked_not_negative CHECK (checked >= 0)
);

-- Ticks of schedules that were claimed.
CREATE TABLE ticks (
    job  text    NOT NULL,
    tick integer NOT NULL,
    PRIMARY KEY (job, tick)
);

-- Numbers of assignments of partitions.
CREATE SEQUENCE epochs;
