-- The schema as it was when its history began: what came before was never released.
-- Whatever changed after it stands in the revisions beside this file.

SET LOCAL check_function_bodies = false;

CREATE EXTENSION IF NOT EXISTS btree_gist;

CREATE FUNCTION agent_cap(config jsonb, name text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
         SELECT CASE WHEN jsonb_typeof(config #> ARRAY['caps', name]) = 'number'
                     THEN (least(greatest((config #>> ARRAY['caps', name])::numeric, 0), 1000000)
                           * 1000000)::bigint
                END $$;

CREATE FUNCTION audit_is_only_added() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         RAISE EXCEPTION 'the audit is only ever added to' USING ERRCODE = 'integrity_constraint_violation';
       END $$;

-- How often each word occurs in a table's passages, kept in recall_words.
CREATE FUNCTION count_words_of_knowledge() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       DECLARE sign int := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
       BEGIN
         INSERT INTO recall_words AS w (lane, owner, lexeme, passages, terms)
         SELECT 'knowledge', c.agent_id, t.lexeme, sign * count(*), sign * sum(t.terms)
           FROM changed c CROSS JOIN LATERAL (
                SELECT lexeme, cardinality(positions) AS terms FROM unnest(c.vector)
                UNION ALL SELECT '', c.terms) t
          GROUP BY c.agent_id, t.lexeme ORDER BY c.agent_id, t.lexeme
         ON CONFLICT (lane, owner, lexeme) DO UPDATE
            SET passages = w.passages + excluded.passages, terms = w.terms + excluded.terms;
         IF TG_OP = 'DELETE' THEN
           DELETE FROM recall_words w WHERE w.lane = 'knowledge' AND w.passages <= 0
              AND w.owner IN (SELECT agent_id FROM changed);
         END IF;
         RETURN NULL;
       END $$;

CREATE FUNCTION count_words_of_passages() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       DECLARE sign int := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
       BEGIN
         INSERT INTO recall_words AS w (lane, owner, lexeme, passages, terms)
         SELECT 'said', c.session_id, t.lexeme, sign * count(*), sign * sum(t.terms)
           FROM changed c CROSS JOIN LATERAL (
                SELECT lexeme, cardinality(positions) AS terms FROM unnest(c.vector)
                UNION ALL SELECT '', c.terms) t
          GROUP BY c.session_id, t.lexeme ORDER BY c.session_id, t.lexeme
         ON CONFLICT (lane, owner, lexeme) DO UPDATE
            SET passages = w.passages + excluded.passages, terms = w.terms + excluded.terms;
         IF TG_OP = 'DELETE' THEN
           DELETE FROM recall_words w WHERE w.lane = 'said' AND w.passages <= 0
              AND w.owner IN (SELECT session_id FROM changed);
         END IF;
         RETURN NULL;
       END $$;

CREATE FUNCTION drop_months(grown text, months integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    AS $_$
       DECLARE old text; dropped bigint := 0;
       BEGIN
         IF grown NOT IN ('usage', 'turn_context_audit') OR months < 6 THEN
           RAISE EXCEPTION 'these months stay' USING ERRCODE = 'integrity_constraint_violation';
         END IF;
         FOR old IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                     WHERE i.inhparent = to_regclass(grown) AND c.relname ~ ('^' || grown || '_\d{4}_\d{2}$')
                       AND to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month'
                           <= date_trunc('month', now() AT TIME ZONE 'UTC') - make_interval(months => months)
         LOOP
           EXECUTE format('DROP TABLE %I', old);
           dropped := dropped + 1;
         END LOOP;
         RETURN dropped;
       END $_$;

CREATE FUNCTION entries_are_only_added() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         IF current_setting('evertalk.erasing', true) = 'yes' THEN RETURN coalesce(NEW, OLD); END IF;
         RAISE EXCEPTION 'the log is only ever added to' USING ERRCODE = 'integrity_constraint_violation';
       END $$;

-- The log as programs know it, each row in the shortest form that reads the same. A process of a version
-- before writes and reads it whole, by the same names, and its rows are as short.
CREATE FUNCTION entries_are_rows() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       DECLARE kept entry_rows;
       BEGIN
         IF TG_OP = 'DELETE' THEN
           DELETE FROM entry_rows WHERE session_id = OLD.session_id AND seq = OLD.seq;
           RETURN OLD;
         END IF;
         kept.session_id := NEW.session_id;
         kept.seq := NEW.seq;
         kept.author := NEW.author;
         kept.role := nullif(NEW.role, CASE NEW.author WHEN 'assistant' THEN 'assistant' ELSE 'user' END);
         kept.words := plain_words(NEW.blocks);
         kept.blocks := CASE WHEN kept.words IS NULL THEN NEW.blocks END;
         kept.tokens := NEW.tokens;
         kept.dedupe_key := NEW.dedupe_key;
         kept.cid := nullif(NEW.cid, key_cid(NEW.dedupe_key));
         kept.replaces_seq := NEW.replaces_seq;
         kept.at := NEW.at;
         IF TG_OP = 'INSERT' THEN
           INSERT INTO entry_rows (session_id, seq, role, author, blocks, tokens, dedupe_key, cid,
                                   replaces_seq, at, words)
           VALUES (kept.session_id, kept.seq, kept.role, kept.author, kept.blocks, kept.tokens,
                   kept.dedupe_key, kept.cid, kept.replaces_seq, kept.at, kept.words);
         ELSE
           UPDATE entry_rows SET session_id = kept.session_id, seq = kept.seq, role = kept.role,
                  author = kept.author, blocks = kept.blocks, tokens = kept.tokens,
                  dedupe_key = kept.dedupe_key, cid = kept.cid, replaces_seq = kept.replaces_seq,
                  at = kept.at, words = kept.words
            WHERE session_id = OLD.session_id AND seq = OLD.seq;
         END IF;
         RETURN NEW;
       END $$;

CREATE FUNCTION erased_blocks(jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $_$
         SELECT coalesce(jsonb_agg(x.block ORDER BY x.place), '[{"type": "text", "text": "[erased]"}]'::jsonb)
           FROM (SELECT DISTINCT ON (y.place) y.place, y.block FROM (
                   SELECT CASE WHEN b ->> 'type' IN ('tool_use', 'tool_result') THEN n ELSE 0 END AS place, n,
                          CASE b ->> 'type'
                            WHEN 'tool_use' THEN jsonb_build_object(
                              'type', 'tool_use', 'id', b -> 'id', 'name', b -> 'name', 'input', '{}'::jsonb)
                            WHEN 'tool_result' THEN jsonb_build_object(
                              'type', 'tool_result', 'tool_use_id', b -> 'tool_use_id', 'text', '[erased]',
                              'is_error', coalesce(b -> 'is_error', 'false'::jsonb))
                            ELSE '{"type": "text", "text": "[erased]"}'::jsonb END AS block
                     FROM jsonb_array_elements($1) WITH ORDINALITY AS e(b, n)) y
                  ORDER BY y.place, y.n) x $_$;

CREATE FUNCTION erasures_stay_on_record() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         IF TG_OP = 'UPDATE' AND OLD.state = 'running'
            AND (NEW.at, NEW.party_hash, NEW.actor, NEW.scope)
              = (OLD.at, OLD.party_hash, OLD.actor, OLD.scope)
            AND NEW.about IS NOT DISTINCT FROM OLD.about THEN
           RETURN NEW;
         END IF;
         IF TG_OP = 'DELETE' AND OLD.state = 'done' AND OLD.at < now() - interval '1095 days' THEN
           RETURN OLD;
         END IF;
         RAISE EXCEPTION 'an erasure stays on record' USING ERRCODE = 'integrity_constraint_violation';
       END $$;

CREATE FUNCTION forget_words_of_note() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         DELETE FROM note_words WHERE note_id = NEW.id;
         RETURN NULL;
       END $$;

CREATE FUNCTION held_parties() RETURNS SETOF bigint
    LANGUAGE sql STABLE ROWS 5
    AS $$
         SELECT f FROM parties h CROSS JOIN LATERAL party_family(coalesce(h.merged_into, h.id)) AS f
          WHERE h.on_hold_since IS NOT NULL $$;

CREATE FUNCTION held_sessions() RETURNS SETOF bigint
    LANGUAGE sql STABLE ROWS 5
    AS $$
         SELECT id FROM sessions WHERE party_id IN (SELECT held_parties()) $$;

CREATE FUNCTION key_cid(text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
         SELECT CASE WHEN $1 LIKE 'web:%' THEN substr($1, 5)
                     WHEN $1 LIKE 'operator:%' THEN substr($1, 10) END $_$;

CREATE FUNCTION list_hears_of_session() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         INSERT INTO session_list_changes VALUES (NEW.id);
         PERFORM set_config('evertalk.listed', NEW.id::text, true);
         RETURN NULL;
       END $$;

CREATE FUNCTION list_hears_of_totals() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         IF current_setting('evertalk.listed', true) IS DISTINCT FROM NEW.session_id::text THEN
           INSERT INTO session_list_changes VALUES (NEW.session_id);
         END IF;
         RETURN NULL;
       END $$;

CREATE FUNCTION make_months(ahead integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    AS $_$
       DECLARE grown record; start date; month text; taken boolean; other regrole;
       BEGIN
         FOR grown IN VALUES ('usage', 'at'), ('turn_context_audit', 'created_at') LOOP
           FOR step IN 0..least(ahead, 12) LOOP
             start := (date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => step))::date;
             month := grown.column1 || to_char(start, '_YYYY_MM');
             CONTINUE WHEN to_regclass(month) IS NOT NULL;
             EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= $1 AND %2$I < $2)',
                            grown.column1 || '_other', grown.column2)
                INTO taken USING start, start + interval '1 month';
             IF NOT taken THEN
               EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                              month, grown.column1, start || ' 00:00+00',
                              (start + interval '1 month')::date || ' 00:00+00');
               -- Whoever may write does it by the table, which says who may change what.
               FOR other IN SELECT DISTINCT a.grantee::regrole FROM pg_class c, aclexplode(c.relacl) a
                             WHERE c.oid = month::regclass AND a.grantee NOT IN (0, c.relowner) LOOP
                 EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM %s', month, other);
               END LOOP;
             END IF;
           END LOOP;
         END LOOP;
       END $_$;

CREATE FUNCTION name_pieces(text) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
         SELECT coalesce(array_agg(DISTINCT substr(lower($1), n, 3)), '{}')
           FROM generate_series(1, length($1) - 2) n $_$;

CREATE FUNCTION note_timeline() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    AS $$
       DECLARE now_on text := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8); before text;
       BEGIN
         SELECT timeline INTO before FROM deployment WHERE timeline <> now_on FOR UPDATE;
         IF NOT FOUND THEN
           RETURN false;
         END IF;
         UPDATE deployment SET timeline = now_on,
                log_epoch = CASE WHEN before = '' THEN log_epoch ELSE
                  greatest(log_epoch + 1, extract(epoch FROM clock_timestamp())::bigint) END;
         RETURN before <> '';
       END $$;

CREATE FUNCTION nothing_of_erased_turns() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       DECLARE erased bigint;
       BEGIN
         SELECT erased_turn INTO erased FROM sessions WHERE id = NEW.session_id FOR SHARE;
         IF coalesce(NEW.through_turn, NEW.from_turn) <= erased
            OR EXISTS (SELECT FROM flushes WHERE id = NEW.flush_id AND outcome <> 'running') THEN
           RETURN NULL;
         END IF;
         RETURN NEW;
       END $$;

CREATE FUNCTION party_family(bigint) RETURNS SETOF bigint
    LANGUAGE sql STABLE ROWS 1
    AS $_$
         SELECT $1 UNION ALL SELECT id FROM parties WHERE merged_into = $1 $_$;

CREATE FUNCTION plain_words(jsonb) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$
         SELECT words FROM (SELECT $1 -> 0 ->> 'text' AS words) AS first
          WHERE $1 = jsonb_build_array(jsonb_build_object('type', 'text', 'text', words)) $_$;

CREATE FUNCTION recall_keys(bigint, tsvector) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
         SELECT array_agg($1 || ':' || lexeme) FROM unnest(tsvector_to_array($2)) AS lexeme $_$;

-- A conversation is listed with its first row. Of one that is being answered the list hears with the answer,
-- so that most turns are one change; of an answer that takes long, whoever keeps the list finds out.
CREATE FUNCTION session_is_listed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         INSERT INTO session_list (id, public_id, party_id, agent_id, next_turn, context_tokens,
                                   context_limit, last_active_at, troubled_at, last_channel, person)
         VALUES (NEW.id, NEW.public_id, NEW.party_id, NEW.agent_id, NEW.next_turn, NEW.context_tokens,
                 NEW.context_limit, NEW.last_active_at, NEW.troubled_at, NEW.last_channel, NEW.person);
         RETURN NULL;
       END $$;

CREATE FUNCTION session_is_listed_by_name() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         UPDATE session_list SET person = NEW.person WHERE id = NEW.id;
         RETURN NULL;
       END $$;

-- A person's row is held until their session is there: whoever changes the name waits, and then sees it.
-- After a change, not before it: else each change of a session, every turn's, too, would lock its row for that.
CREATE FUNCTION session_knows_its_person() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       DECLARE whose parties;
       BEGIN
         SELECT * INTO whose FROM parties WHERE id = NEW.party_id FOR SHARE;
         IF TG_OP = 'INSERT' THEN
           NEW.person := coalesce(lower(whose.display_name), '');
           NEW.person_name := whose.display_name;
           NEW.person_kind := whose.kind;
           NEW.person_anonymous := whose.anonymous;
           RETURN NEW;
         END IF;
         UPDATE sessions SET person = lower(whose.display_name), person_name = whose.display_name,
                person_kind = whose.kind, person_anonymous = whose.anonymous WHERE id = NEW.id;
         RETURN NULL;
       END $$;

CREATE FUNCTION sessions_know_a_new_name() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         UPDATE sessions SET person = lower(NEW.display_name), person_name = NEW.display_name,
                person_kind = NEW.kind, person_anonymous = NEW.anonymous WHERE party_id = NEW.id;
         RETURN NULL;
       END $$;

CREATE FUNCTION totals_add_up() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         NEW.total_tokens := NEW.input_tokens + NEW.cache_read_tokens + NEW.cache_write_tokens
                             + NEW.output_tokens;
         RETURN NEW;
       END $$;

-- Whoever marks a part as uncertain, in this version or in one before, owes its person a word; and what was
-- told is looked at again as soon as more is known.
CREATE FUNCTION uncertain_parts_are_told() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
       BEGIN
         IF NEW.state = 'uncertain' THEN
           INSERT INTO uncertain_notices AS n (session_id, turn_no, address_id)
           VALUES (NEW.session_id, NEW.turn_no, NEW.address_id)
           ON CONFLICT (session_id, turn_no) DO UPDATE
              SET state = 'due', round = n.round + 1, tries = 0, due_at = now() WHERE n.state = 'over';
         ELSE
           UPDATE uncertain_notices SET due_at = now()
            WHERE session_id = NEW.session_id AND turn_no = NEW.turn_no AND state <> 'over';
         END IF;
         RETURN NULL;
       END $$;

-- A place in a channel: a Telegram chat and topic, a visitor of a site.
CREATE TABLE addresses (
    id bigint NOT NULL,
    channel text NOT NULL,
    account text NOT NULL,
    chat text NOT NULL,
    thread text DEFAULT ''::text NOT NULL,
    party_id bigint NOT NULL,
    session_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    title text DEFAULT ''::text NOT NULL,
    settings jsonb DEFAULT '{}'::jsonb NOT NULL,
    unreachable_since timestamp with time zone,
    read_seq bigint DEFAULT 0 NOT NULL
);

CREATE SEQUENCE addresses_id_seq;

ALTER SEQUENCE addresses_id_seq OWNED BY addresses.id;

CREATE TABLE agents (
    id bigint NOT NULL,
    name text NOT NULL,
    config jsonb DEFAULT '{}'::jsonb NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE SEQUENCE agents_id_seq;

ALTER SEQUENCE agents_id_seq OWNED BY agents.id;

-- One message about an alert to one target; `sending` while the request is under way, and not longer.
CREATE TABLE alert_sends (
    id bigint NOT NULL,
    alert_id bigint NOT NULL,
    target text NOT NULL,
    phase text NOT NULL,
    send_key uuid DEFAULT gen_random_uuid() NOT NULL,
    state text DEFAULT 'due'::text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    error text DEFAULT ''::text NOT NULL,
    sent_by bigint,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT alert_send_ends CHECK (((ended_at IS NULL) = (state = ANY (ARRAY['due'::text, 'sending'::text])))),
    CONSTRAINT alert_send_has_a_sender CHECK (((state = 'sending'::text) = (sent_by IS NOT NULL))),
    CONSTRAINT alert_send_phase CHECK ((phase = ANY (ARRAY['opened'::text, 'ended'::text]))),
    CONSTRAINT alert_send_state CHECK ((state = ANY (ARRAY['due'::text, 'sending'::text, 'sent'::text, 'failed'::text, 'uncertain'::text]))),
    CONSTRAINT alert_send_target CHECK (((target = ANY (ARRAY['webhook'::text, 'email'::text])) OR (target ~~ 'telegram:%'::text)))
);

CREATE SEQUENCE alert_sends_id_seq;

ALTER SEQUENCE alert_sends_id_seq OWNED BY alert_sends.id;

-- Something that needs an operator: open while it is so, once for each key. Never words of people.
CREATE TABLE alerts (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    kind text NOT NULL,
    key text DEFAULT ''::text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    opened_at timestamp with time zone DEFAULT now() NOT NULL,
    true_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    seen_at timestamp with time zone,
    seen_by text DEFAULT ''::text NOT NULL,
    CONSTRAINT alert_detail_is_an_object CHECK ((jsonb_typeof(detail) = 'object'::text)),
    CONSTRAINT alert_ends_after_it_began CHECK ((ended_at >= opened_at)),
    CONSTRAINT alert_kind CHECK ((kind = ANY (ARRAY['spend_80'::text, 'spend_100'::text, 'provider_refused'::text, 'breaker_open'::text, 'dead_job'::text, 'uncertain_delivery'::text, 'disk_low'::text, 'handover_waiting'::text, 'no_worker'::text, 'no_backup'::text, 'agent_cap_80'::text, 'agent_cap_100'::text, 'window_narrowed'::text, 'stuck_turn'::text, 'test'::text, 'no_summaries'::text, 'spend_source'::text])))
);

CREATE SEQUENCE alerts_id_seq;

ALTER SEQUENCE alerts_id_seq OWNED BY alerts.id;

-- What a program may do over REST, by a token that is kept as a hash only.
CREATE TABLE api_keys (
    id bigint NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    token_hash bytea NOT NULL,
    scopes text[] NOT NULL,
    site text,
    agent_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_key_is_kept_as_a_hash CHECK ((octet_length(token_hash) = 32)),
    CONSTRAINT api_key_may_something CHECK ((cardinality(scopes) > 0))
);

CREATE SEQUENCE api_keys_id_seq;

ALTER SEQUENCE api_keys_id_seq OWNED BY api_keys.id;

-- The whole of something that the log shows by head and tail only.
CREATE TABLE artifacts (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    session_id bigint NOT NULL,
    seq bigint NOT NULL,
    sha256 bytea NOT NULL,
    body text NOT NULL,
    tokens integer NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE SEQUENCE artifacts_id_seq;

ALTER SEQUENCE artifacts_id_seq OWNED BY artifacts.id;

CREATE TABLE attachments (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    session_id bigint NOT NULL,
    sha256 bytea NOT NULL,
    mime text NOT NULL,
    size bigint NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    body bytea,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    arrived_sha256 bytea,
    width integer,
    height integer,
    words text,
    CONSTRAINT attachment_is_at_most_20_mib CHECK ((size <= 20971520)),
    CONSTRAINT attachment_is_seen_or_read CHECK (((arrived_sha256 IS NULL) OR ((words IS NULL) = (width IS NOT NULL)))),
    CONSTRAINT attachment_state CHECK ((state = ANY (ARRAY['waiting'::text, 'stored'::text, 'refused'::text])))
);

CREATE SEQUENCE attachments_id_seq;

ALTER SEQUENCE attachments_id_seq OWNED BY attachments.id;

-- Who read or changed what; each row carries the hash of the one before. Ids, never text.
CREATE TABLE audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    object text DEFAULT ''::text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    prev_hash bytea NOT NULL,
    hash bytea NOT NULL
);

CREATE SEQUENCE audit_id_seq;

ALTER SEQUENCE audit_id_seq OWNED BY audit.id;

-- A ledger made at an early flush, used when the summary that should follow fails.
CREATE TABLE checkpoints (
    id bigint NOT NULL,
    session_id bigint NOT NULL,
    parent bigint,
    from_turn bigint NOT NULL,
    through_turn bigint NOT NULL,
    ledger jsonb DEFAULT '{}'::jsonb NOT NULL,
    audit jsonb DEFAULT '{}'::jsonb NOT NULL,
    tokens integer DEFAULT 0 NOT NULL,
    model text DEFAULT ''::text NOT NULL,
    cost_micro bigint,
    job_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT checkpoint_range CHECK ((from_turn <= through_turn))
);

CREATE SEQUENCE checkpoints_id_seq;

ALTER SEQUENCE checkpoints_id_seq OWNED BY checkpoints.id;

-- One part of an answer on its way to a person, written before it is sent.
CREATE TABLE deliveries (
    session_id bigint NOT NULL,
    turn_no bigint NOT NULL,
    part integer NOT NULL,
    channel text NOT NULL,
    address_id bigint NOT NULL,
    state text DEFAULT 'queued'::text NOT NULL,
    remote_id text,
    attempt integer DEFAULT 0 NOT NULL,
    error text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    delivered_at timestamp with time zone,
    CONSTRAINT delivery_state CHECK ((state = ANY (ARRAY['queued'::text, 'sending'::text, 'sent'::text, 'delivered'::text, 'uncertain'::text, 'dead'::text])))
);

-- One row: what is true of this installation. A restore and a promoted standby raise `log_epoch`.
CREATE TABLE deployment (
    id integer DEFAULT 1 NOT NULL,
    log_epoch bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    -- Of the server that wrote last; empty where it does not tell.
    timeline text DEFAULT ''::text NOT NULL,
    CONSTRAINT deployment_is_one_row CHECK ((id = 1))
);

-- One message of the log, only ever added; whoever is in no hurry reads and writes the view `entries`.
-- Plain words stand in `words`, everything else in `blocks`; what follows from another column is left out.
-- For its rows and those of `turns`, `turn_entries` and `events` no foreign key looks for what they belong
-- to: it would lock that against nothing, at the price of a record of the log for each row that a turn
-- adds. Sessions, turns, entries and addresses are there for good: no statement deletes one, other keys
-- (`totals_session`, `visitors_address_id_fkey`) and this table's trigger keep the database from it, and
-- all four are written by statements that hold the session's row and take its number from there.
-- `check_invariants` looks for rows that belong to nothing.
CREATE TABLE entry_rows (
    session_id bigint NOT NULL,
    seq bigint NOT NULL,
    -- Null where the author says it: the assistant's is `assistant`, everybody else's `user`.
    role text,
    author text NOT NULL,
    blocks jsonb,
    tokens integer NOT NULL,
    dedupe_key text,
    -- Null where the key has it.
    cid text,
    replaces_seq bigint,
    at timestamp with time zone DEFAULT now() NOT NULL,
    words text,
    CONSTRAINT entry_author CHECK ((author = ANY (ARRAY['person'::text, 'assistant'::text, 'tool'::text, 'operator'::text, 'program'::text]))),
    CONSTRAINT entry_is_words_or_blocks CHECK ((num_nonnulls(words, blocks) = 1)),
    CONSTRAINT entry_role CHECK ((role = ANY (ARRAY['user'::text, 'assistant'::text]))),
    CONSTRAINT entry_seq_counts_from_one CHECK ((seq > 0))
);

CREATE VIEW entries AS
 SELECT session_id,
    seq,
    COALESCE(role,
        CASE author
            WHEN 'assistant'::text THEN 'assistant'::text
            ELSE 'user'::text
        END) AS role,
    author,
        CASE
            WHEN (words IS NULL) THEN blocks
            ELSE jsonb_build_array(jsonb_build_object('type', 'text', 'text', words))
        END AS blocks,
    tokens,
    dedupe_key,
    COALESCE(cid, key_cid(dedupe_key)) AS cid,
    replaces_seq,
    at
   FROM entry_rows;

-- Somebody asked what `/forget everything` would take, and may say yes for a while.
CREATE TABLE erasure_wishes (
    session_id bigint NOT NULL,
    asked_at timestamp with time zone DEFAULT now() NOT NULL
);

-- The log of what was erased, without content; `work` says what is left to do and goes with its end.
-- `about` holds numbers, random ids and hashes of them: what to erase again in a restored backup.
CREATE TABLE erasures (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    party_hash bytea NOT NULL,
    actor text NOT NULL,
    scope text NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    step integer DEFAULT 0 NOT NULL,
    counts jsonb DEFAULT '{}'::jsonb NOT NULL,
    work jsonb,
    finished_at timestamp with time zone,
    about jsonb,
    CONSTRAINT erasure_end_has_a_time CHECK (((state = 'done'::text) = (finished_at IS NOT NULL))),
    CONSTRAINT erasure_is_about_ids CHECK (((about IS NULL) OR (jsonb_typeof(about) = 'object'::text))),
    CONSTRAINT erasure_keeps_no_ids CHECK (((state = 'done'::text) = (work IS NULL))),
    CONSTRAINT erasure_scope CHECK ((scope = ANY (ARRAY['everything'::text, 'messages'::text, 'retention'::text, 'notes'::text]))),
    CONSTRAINT erasure_state CHECK ((state = ANY (ARRAY['running'::text, 'done'::text])))
);

CREATE SEQUENCE erasures_id_seq;

ALTER SEQUENCE erasures_id_seq OWNED BY erasures.id;

-- What screens are told, numbered without gaps in the transaction of the row it speaks of.
CREATE TABLE events (
    session_id bigint NOT NULL,
    event_seq bigint NOT NULL,
    kind text NOT NULL,
    seq bigint,
    turn_no bigint,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL
);

-- What a person thought of an answer; the newest opinion counts.
CREATE TABLE feedback (
    session_id bigint NOT NULL,
    turn_no bigint NOT NULL,
    opinion text,
    source text DEFAULT ''::text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    words text DEFAULT ''::text NOT NULL,
    cids text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT feedback_opinion CHECK ((opinion = ANY (ARRAY['good'::text, 'bad'::text])))
);

-- One silent pass over a range of turns, and what came of it; its stray words are shown to nobody.
CREATE TABLE flushes (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    session_id bigint NOT NULL,
    cycle bigint NOT NULL,
    threshold text NOT NULL,
    from_turn bigint NOT NULL,
    through_turn bigint NOT NULL,
    outcome text DEFAULT 'running'::text NOT NULL,
    note_count integer DEFAULT 0 NOT NULL,
    stray_text text DEFAULT ''::text NOT NULL,
    error text DEFAULT ''::text NOT NULL,
    model text DEFAULT ''::text NOT NULL,
    tokens bigint DEFAULT 0 NOT NULL,
    cost_micro bigint,
    job_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT flush_outcome CHECK ((outcome = ANY (ARRAY['running'::text, 'saved'::text, 'nothing'::text, 'failed'::text])))
);

CREATE SEQUENCE flushes_id_seq;

ALTER SEQUENCE flushes_id_seq OWNED BY flushes.id;

-- A conversation that waits for an operator, is with one, or was; `told` is the word that it is over. Only
-- a channel that sends messages needs `told`; on the web the stored notice is on the screen.
CREATE TABLE handovers (
    id bigint NOT NULL,
    session_id bigint NOT NULL,
    address_id bigint NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    asked_by text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    call_key text,
    operator_id bigint,
    operator_name text DEFAULT ''::text NOT NULL,
    asked_at timestamp with time zone DEFAULT now() NOT NULL,
    taken_at timestamp with time zone,
    ended_at timestamp with time zone,
    ended_by text DEFAULT ''::text NOT NULL,
    told text DEFAULT 'nothing'::text NOT NULL,
    CONSTRAINT handover_asker CHECK ((asked_by = ANY (ARRAY['person'::text, 'assistant'::text, 'operator'::text]))),
    CONSTRAINT handover_end_has_a_reason CHECK (((ended_by = ANY (ARRAY[''::text, 'operator'::text, 'person'::text, 'unanswered'::text, 'silent'::text, 'off'::text])) AND ((ended_by = ''::text) = (state <> 'ended'::text)))),
    CONSTRAINT handover_end_has_a_time CHECK (((ended_at IS NULL) = (state <> 'ended'::text))),
    CONSTRAINT handover_has_its_operator CHECK (((state <> 'human'::text) OR ((operator_id IS NOT NULL) AND (taken_at IS NOT NULL)))),
    CONSTRAINT handover_reason_is_short CHECK ((char_length(reason) <= 500)),
    CONSTRAINT handover_state CHECK ((state = ANY (ARRAY['waiting'::text, 'human'::text, 'ended'::text]))),
    CONSTRAINT handover_told CHECK (((told = ANY (ARRAY['nothing'::text, 'queued'::text, 'sending'::text, 'told'::text, 'uncertain'::text, 'dead'::text])) AND ((told = 'nothing'::text) OR (state = 'ended'::text))))
);

CREATE SEQUENCE handovers_id_seq;

ALTER SEQUENCE handovers_id_seq OWNED BY handovers.id;

-- Work to be done by a worker; one per key while it is due or running, one running per session.
CREATE TABLE jobs (
    id bigint NOT NULL,
    kind text NOT NULL,
    session_id bigint NOT NULL,
    key text NOT NULL,
    state text DEFAULT 'due'::text NOT NULL,
    trigger text DEFAULT 'auto'::text NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    faults integer DEFAULT 0 NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    leased_by bigint,
    last_error text DEFAULT ''::text NOT NULL,
    outcome jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    failures jsonb DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT job_kind CHECK ((kind = ANY (ARRAY['flush'::text, 'compact'::text, 'tidy'::text]))),
    CONSTRAINT job_state CHECK ((state = ANY (ARRAY['due'::text, 'running'::text, 'done'::text, 'dead'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE SEQUENCE jobs_id_seq;

ALTER SEQUENCE jobs_id_seq OWNED BY jobs.id;

-- A passage of a file that an agent knows; a file without text has one empty passage.
CREATE TABLE knowledge (
    agent_id bigint NOT NULL,
    path text NOT NULL,
    place integer NOT NULL,
    sha256 bytea NOT NULL,
    heading text DEFAULT ''::text NOT NULL,
    text text NOT NULL,
    terms integer NOT NULL,
    vector tsvector NOT NULL,
    indexed_at timestamp with time zone DEFAULT now() NOT NULL
);

-- Who may do what only one process may do, such as polling a bot; it lapses with its holder's beat.
CREATE TABLE leases (
    name text NOT NULL,
    leased_by bigint,
    epoch bigint DEFAULT 0 NOT NULL,
    taken_at timestamp with time zone DEFAULT now() NOT NULL
);

-- Somebody typed a code that joins nothing; kept for an hour.
CREATE TABLE link_guesses (
    id bigint NOT NULL,
    party_id bigint NOT NULL,
    session_id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE SEQUENCE link_guesses_id_seq;

ALTER SEQUENCE link_guesses_id_seq OWNED BY link_guesses.id;

-- What hides a range of turns; the active ones cover 1 … base without gap or overlap.
CREATE TABLE links (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    session_id bigint NOT NULL,
    kind text NOT NULL,
    from_turn bigint NOT NULL,
    through_turn bigint NOT NULL,
    from_seq bigint NOT NULL,
    through_seq bigint NOT NULL,
    parent bigint,
    active boolean DEFAULT true NOT NULL,
    trigger text NOT NULL,
    summary_text text DEFAULT ''::text NOT NULL,
    ledger jsonb DEFAULT '{}'::jsonb NOT NULL,
    contract jsonb DEFAULT '{}'::jsonb NOT NULL,
    audit jsonb DEFAULT '{}'::jsonb NOT NULL,
    tokens integer DEFAULT 0 NOT NULL,
    tokens_before bigint DEFAULT 0 NOT NULL,
    tokens_after bigint DEFAULT 0 NOT NULL,
    model text DEFAULT ''::text NOT NULL,
    cost_micro bigint,
    duration_ms bigint DEFAULT 0 NOT NULL,
    flush_id bigint,
    job_id bigint,
    focus text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    undone_at timestamp with time zone,
    CONSTRAINT link_counts_from_one CHECK ((from_turn > 0)),
    CONSTRAINT link_kind CHECK ((kind = ANY (ARRAY['summary'::text, 'digest'::text, 'separator'::text, 'new'::text, 'window'::text]))),
    CONSTRAINT link_range CHECK ((from_turn <= through_turn)),
    CONSTRAINT link_tokens CHECK ((tokens >= 0))
);

CREATE SEQUENCE links_id_seq;

ALTER SEQUENCE links_id_seq OWNED BY links.id;

-- A link that logs an operator in once.
CREATE TABLE login_links (
    token_hash bytea NOT NULL,
    operator_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone
);

-- Where an operator has logged in, by a keyed hash of both: there no stranger's tries count.
CREATE TABLE login_places (
    key bytea NOT NULL,
    operator_id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT login_places_are_hashes CHECK ((octet_length(key) = 32))
);

-- Failed logins by the hash of an account, an address, or both; whoever asks too often waits longer.
CREATE TABLE login_tries (
    key bytea NOT NULL,
    operator_id bigint,
    failures integer DEFAULT 0 NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    refused_until timestamp with time zone,
    CONSTRAINT login_tries_are_of_hashes CHECK ((octet_length(key) = 32)),
    CONSTRAINT login_tries_count CHECK ((failures >= 0))
);

-- The notes that a place was shown last, so that a number can name one; it lapses and serves once.
CREATE TABLE note_lists (
    session_id bigint NOT NULL,
    address_id bigint NOT NULL,
    purpose text NOT NULL,
    note_ids bigint[] NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT note_list_purpose CHECK ((purpose = ANY (ARRAY['list'::text, 'forget'::text])))
);

-- The words of a note that may be recalled; gone as soon as the note changes or is forgotten.
CREATE TABLE note_words (
    note_id bigint NOT NULL,
    party_id bigint NOT NULL,
    terms integer NOT NULL,
    vector tsvector NOT NULL,
    indexed_at timestamp with time zone DEFAULT now() NOT NULL
);

-- One thing remembered about a party; superseded or forgotten, never silently changed.
CREATE TABLE notes (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    party_id bigint NOT NULL,
    scope text NOT NULL,
    kind text NOT NULL,
    text text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    session_id bigint,
    from_turn bigint,
    through_turn bigint,
    flush_id bigint,
    authority text DEFAULT 'person'::text NOT NULL,
    importance integer DEFAULT 5 NOT NULL,
    hash bytea NOT NULL,
    observed_at timestamp with time zone DEFAULT now() NOT NULL,
    event_date text,
    superseded_by bigint,
    forgotten_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    durability text DEFAULT 'durable'::text NOT NULL,
    source_seqs jsonb DEFAULT '[]'::jsonb NOT NULL,
    gist integer[] DEFAULT '{}'::integer[] NOT NULL,
    call_key text,
    superseded_reason text DEFAULT ''::text NOT NULL,
    expired_at timestamp with time zone,
    undo_until timestamp with time zone,
    -- Superseded because two persons became one, who both had it; comes back when they part.
    party_link_id bigint,
    CONSTRAINT note_authority CHECK ((authority = ANY (ARRAY['person'::text, 'assistant'::text, 'tool'::text, 'operator'::text]))),
    CONSTRAINT note_durability CHECK ((durability = ANY (ARRAY['permanent'::text, 'durable'::text, 'ephemeral'::text]))),
    CONSTRAINT note_importance CHECK (((importance >= 1) AND (importance <= 9))),
    CONSTRAINT note_is_not_its_own_heir CHECK ((superseded_by <> id)),
    CONSTRAINT note_reason CHECK ((superseded_reason = ANY (ARRAY[''::text, 'changed'::text, 'duplicate'::text]))),
    CONSTRAINT note_words_until_forgotten CHECK (
CASE
    WHEN (forgotten_at IS NULL) THEN ((text <> ''::text) AND (undo_until IS NULL))
    WHEN (undo_until IS NULL) THEN ((text = ''::text) AND (subject = ''::text) AND (event_date IS NULL))
    ELSE (text <> ''::text)
END)
);

CREATE SEQUENCE notes_id_seq;

ALTER SEQUENCE notes_id_seq OWNED BY notes.id;

-- A code that does one thing once: makes a bot's owner, joins two channels, opens an event stream.
CREATE TABLE one_time_codes (
    code_hash bytea NOT NULL,
    purpose text NOT NULL,
    bot_id bigint,
    party_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    address_id bigint,
    wishes jsonb,
    CONSTRAINT one_time_code_purpose CHECK ((purpose = ANY (ARRAY['telegram_owner'::text, 'link'::text, 'stream'::text])))
);

-- An operator's authenticator app: its key, sealed, and hashes of the codes for when it is lost.
CREATE TABLE operator_factors (
    operator_id bigint NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    last_step bigint DEFAULT 0 NOT NULL,
    recovery bytea[] DEFAULT '{}'::bytea[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    confirmed_at timestamp with time zone,
    CONSTRAINT factor_opens_when_confirmed CHECK (((confirmed_at IS NOT NULL) OR (recovery = '{}'::bytea[])))
);

-- A browser in which an operator is logged in.
CREATE TABLE operator_sessions (
    token_hash bytea NOT NULL,
    operator_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    how text DEFAULT 'link'::text NOT NULL,
    source text DEFAULT ''::text NOT NULL,
    browser text DEFAULT ''::text NOT NULL,
    CONSTRAINT operator_session_how CHECK ((how = ANY (ARRAY['link'::text, 'password'::text, 'provider'::text])))
);

-- Half a login: the password was right, the code is still to come.
CREATE TABLE operator_steps (
    token_hash bytea NOT NULL,
    operator_id bigint NOT NULL,
    how text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT operator_step_how CHECK ((how = ANY (ARRAY['link'::text, 'password'::text])))
);

-- Who runs the program; one of an identity provider has `issuer` and `subject` and no password.
CREATE TABLE operators (
    id bigint NOT NULL,
    name text NOT NULL,
    role text DEFAULT 'admin'::text NOT NULL,
    password_hash text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    disabled_at timestamp with time zone,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    issuer text,
    subject text,
    last_login_at timestamp with time zone,
    CONSTRAINT operator_has_one_way_in CHECK (((issuer IS NULL) OR (password_hash IS NULL))),
    CONSTRAINT operator_of_a_provider CHECK (((issuer IS NULL) = (subject IS NULL))),
    CONSTRAINT operator_role CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'admin'::text])))
);

CREATE SEQUENCE operators_id_seq;

ALTER SEQUENCE operators_id_seq OWNED BY operators.id;

-- A person, or a group; owns sessions and notes.
CREATE TABLE parties (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    kind text DEFAULT 'person'::text NOT NULL,
    display_name text DEFAULT ''::text NOT NULL,
    timezone text,
    anonymous boolean DEFAULT false NOT NULL,
    merged_into bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    on_hold_since timestamp with time zone,
    on_hold_by text,
    -- Where an anonymous visitor was seen last: a keyed hash of an IPv4 address or an IPv6 /56.
    network text,
    network_at timestamp with time zone,
    CONSTRAINT hold_says_whose CHECK (((on_hold_since IS NULL) = (on_hold_by IS NULL))),
    CONSTRAINT network_is_a_hash CHECK (((network IS NULL) OR ((network ~ '^[0-9a-f]{32}$'::text) AND (network_at IS NOT NULL)))),
    CONSTRAINT party_kind CHECK ((kind = ANY (ARRAY['person'::text, 'group'::text]))),
    CONSTRAINT party_not_merged_into_itself CHECK ((merged_into <> id))
);

CREATE SEQUENCE parties_id_seq;

ALTER SEQUENCE parties_id_seq OWNED BY parties.id;

-- Two persons who became one: whose code was typed by whom, and which session waits for them to part.
CREATE TABLE party_links (
    id bigint NOT NULL,
    kept_party_id bigint NOT NULL,
    joined_party_id bigint NOT NULL,
    kept_session_id bigint NOT NULL,
    archived_session_id bigint NOT NULL,
    day date NOT NULL,
    -- What the one who joined had spent that day; it counts for both from then on.
    carried_micro bigint DEFAULT 0 NOT NULL,
    linked_at timestamp with time zone DEFAULT now() NOT NULL,
    unlinked_at timestamp with time zone,
    CONSTRAINT party_link_joins_two CHECK (((kept_party_id <> joined_party_id) AND (kept_session_id <> archived_session_id)))
);

CREATE SEQUENCE party_links_id_seq;

ALTER SEQUENCE party_links_id_seq OWNED BY party_links.id;

-- A piece of a hidden message that can be found again; `number` is the order of the context.
CREATE TABLE passages (
    session_id bigint NOT NULL,
    number bigint NOT NULL,
    seq bigint NOT NULL,
    part integer NOT NULL,
    turn_no bigint NOT NULL,
    author text NOT NULL,
    speaker text DEFAULT ''::text NOT NULL,
    sitting integer NOT NULL,
    at timestamp with time zone NOT NULL,
    text text NOT NULL,
    terms integer NOT NULL,
    vector tsvector NOT NULL,
    indexed_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE pins (
    session_id bigint NOT NULL,
    seq bigint NOT NULL,
    pinned_at timestamp with time zone DEFAULT now() NOT NULL
);

-- System text, tool schemas and notes as they were sent, stored once by content.
CREATE TABLE prompt_parts (
    sha256 bytea NOT NULL,
    body text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

-- How an old tool result, or hidden chatter, is shown from a turn on; only added to, for replays.
CREATE TABLE prune_decisions (
    session_id bigint NOT NULL,
    seq bigint NOT NULL,
    form text NOT NULL,
    turn_no bigint NOT NULL,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    shown jsonb,
    CONSTRAINT prune_form CHECK ((form = ANY (ARRAY['trim'::text, 'clear'::text, 'duplicate'::text, 'hide'::text])))
);

-- In how many passages of a session, or of an agent's files, a word occurs; '' counts them all.
CREATE TABLE recall_words (
    lane text NOT NULL,
    owner bigint NOT NULL,
    lexeme text NOT NULL,
    passages bigint NOT NULL,
    terms bigint NOT NULL,
    CONSTRAINT recall_words_lane CHECK ((lane = ANY (ARRAY['said'::text, 'knowledge'::text])))
);

-- Brings an anonymous conversation to another browser; each place has one, as a hash.
CREATE TABLE recovery_codes (
    address_id bigint NOT NULL,
    code_hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

-- What a person wants to be told at a time; it begins a turn of its own when that has come. `tell_at` is
-- `due_at` unless that lies in quiet hours. Until it is told, it belongs to its address, whatever session
-- that leads to by then.
CREATE TABLE reminders (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    key text NOT NULL,
    party_id bigint NOT NULL,
    session_id bigint NOT NULL,
    address_id bigint NOT NULL,
    text text NOT NULL,
    due_at timestamp with time zone NOT NULL,
    tell_at timestamp with time zone NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    turn_no bigint,
    reason text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT reminder_end_has_a_time CHECK (((ended_at IS NULL) = (state = ANY (ARRAY['pending'::text, 'claimed'::text])))),
    CONSTRAINT reminder_has_its_turn CHECK (((state <> ALL (ARRAY['claimed'::text, 'done'::text])) OR (turn_no IS NOT NULL))),
    CONSTRAINT reminder_state CHECK ((state = ANY (ARRAY['pending'::text, 'claimed'::text, 'done'::text, 'cancelled'::text, 'failed'::text]))),
    CONSTRAINT reminder_text_is_short CHECK (((char_length(text) >= 1) AND (char_length(text) <= 500)))
);

CREATE SEQUENCE reminders_id_seq;

ALTER SEQUENCE reminders_id_seq OWNED BY reminders.id;

-- Money set aside before a call and settled after it.
CREATE TABLE reservations (
    id bigint NOT NULL,
    session_id bigint NOT NULL,
    party_id bigint NOT NULL,
    turn_no bigint,
    job_id bigint,
    day date NOT NULL,
    amount_micro bigint NOT NULL,
    settled_micro bigint,
    state text DEFAULT 'held'::text NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT reservation_amount CHECK ((amount_micro >= 0)),
    CONSTRAINT reservation_state CHECK ((state = ANY (ARRAY['held'::text, 'settled'::text, 'released'::text])))
);

CREATE SEQUENCE reservations_id_seq;

ALTER SEQUENCE reservations_id_seq OWNED BY reservations.id;

-- What the dashboard's list is ordered and filtered by, as it was some seconds ago; a worker keeps it.
-- Columns are those of `sessions` and `session_totals`, by the same names. `person` is changed with the
-- session's own, in the same transaction: a forgotten name is nowhere.
CREATE TABLE session_list (
    id bigint NOT NULL,
    public_id uuid NOT NULL,
    party_id bigint NOT NULL,
    agent_id bigint NOT NULL,
    next_turn bigint NOT NULL,
    context_tokens bigint NOT NULL,
    context_limit bigint NOT NULL,
    last_active_at timestamp with time zone NOT NULL,
    troubled_at timestamp with time zone,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cache_read_tokens bigint DEFAULT 0 NOT NULL,
    cache_write_tokens bigint DEFAULT 0 NOT NULL,
    cost_micro bigint DEFAULT 0 NOT NULL,
    cost_unknown_calls bigint DEFAULT 0 NOT NULL,
    last_channel text NOT NULL,
    person text NOT NULL,
    CONSTRAINT listed_session_counts CHECK (((context_limit >= 0) AND (next_turn > 0)))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

-- Sessions that `session_list` is to be told of, once for each change. Without a key, for each turn writes a row.
CREATE TABLE session_list_changes (
    session_id bigint NOT NULL,
    CONSTRAINT list_change_of CHECK ((session_id > 0))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000');

-- What a conversation spent for one purpose with one model, added up with each row of the ledger.
CREATE TABLE session_spend (
    session_id bigint NOT NULL,
    purpose text NOT NULL,
    model text NOT NULL,
    calls bigint NOT NULL,
    aborted bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_micro bigint,
    unknown_cost bigint NOT NULL,
    unknown_tokens bigint NOT NULL,
    CONSTRAINT spend_counts_calls CHECK (aborted BETWEEN 0 AND calls AND unknown_cost BETWEEN 0 AND calls
        AND unknown_tokens BETWEEN 0 AND calls AND calls > 0),
    CONSTRAINT spend_is_null_when_unknown CHECK (((cost_micro IS NULL) = (unknown_cost = calls))),
    CONSTRAINT spend_purpose CHECK ((purpose = ANY (ARRAY['chat'::text, 'flush'::text, 'compact'::text, 'repair'::text, 'delegate'::text, 'tidy'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE VIEW session_summaries AS
 SELECT id,
    session_id,
    from_seq AS from_message_id,
    through_seq AS to_message_id,
    summary_text,
    created_at
   FROM links
  WHERE (kind = ANY (ARRAY['summary'::text, 'digest'::text]));

-- Lifetime sums, written with each turn; never the same thing as "context now".
CREATE TABLE session_totals (
    session_id bigint NOT NULL,
    -- All that was read, cached or not, and all that was said: the sum of the four, by a trigger.
    total_tokens bigint DEFAULT 0 NOT NULL,
    -- Of each turn its last request, as it was estimated, and what was said: sums that need no provider.
    total_tokens_estimate bigint DEFAULT 0 NOT NULL,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cache_read_tokens bigint DEFAULT 0 NOT NULL,
    cache_write_tokens bigint DEFAULT 0 NOT NULL,
    cost_micro bigint DEFAULT 0 NOT NULL,
    cost_unknown_calls bigint DEFAULT 0 NOT NULL,
    compaction_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT totals_add_up CHECK ((total_tokens = (((input_tokens + cache_read_tokens) + cache_write_tokens) + output_tokens)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

-- The never-ending conversation. Its row is the lock and the source of every gap-free number. No index is
-- over what a turn changes, nor has it in its condition: else each index would hear of each step of a turn.
-- What the dashboard orders by is copied to `session_list`; who waits, `turns` know.
CREATE TABLE sessions (
    id bigint NOT NULL,
    public_id uuid DEFAULT gen_random_uuid() NOT NULL,
    party_id bigint NOT NULL,
    agent_id bigint NOT NULL,
    next_seq bigint DEFAULT 1 NOT NULL,
    next_event_seq bigint DEFAULT 1 NOT NULL,
    next_turn bigint DEFAULT 1 NOT NULL,
    open_turn bigint,
    answered_turn bigint DEFAULT 0 NOT NULL,
    turn_epoch bigint DEFAULT 0 NOT NULL,
    leased_by bigint,
    retry_at timestamp with time zone,
    view_epoch bigint DEFAULT 0 NOT NULL,
    base_turn bigint DEFAULT 0 NOT NULL,
    head bigint,
    redo bigint,
    hold_compaction boolean DEFAULT false NOT NULL,
    flushed_turn bigint DEFAULT 0 NOT NULL,
    cycle bigint DEFAULT 0 NOT NULL,
    goal text DEFAULT ''::text NOT NULL,
    mode text DEFAULT ''::text NOT NULL,
    context_tokens bigint DEFAULT 0 NOT NULL,
    context_limit bigint DEFAULT 0 NOT NULL,
    token_ratio double precision DEFAULT 1.0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_active_at timestamp with time zone DEFAULT now() NOT NULL,
    compaction_rest jsonb,
    measured_by text DEFAULT ''::text NOT NULL,
    token_ratios jsonb DEFAULT '{}'::jsonb NOT NULL,
    indexed_turn bigint DEFAULT 0 NOT NULL,
    -- What the person chose among the agent's models; empty is the agent's own.
    model text DEFAULT ''::text NOT NULL,
    -- Where the turn that still collects messages comes from; those of another place begin their own.
    open_address bigint,
    -- Since its person goes on in another session; it accepts nothing.
    archived_at timestamp with time zone,
    -- Addresses that once led here; a screen that has not heard of it yet may not write.
    left_by bigint[],
    erased_turn bigint DEFAULT 0 NOT NULL,
    -- While a person is asked for or here: the last turn that the assistant still answers.
    held_after bigint,
    -- Where the newest turn came from, written with it; empty before the first.
    last_channel text DEFAULT ''::text NOT NULL,
    -- Set with every turn that fails and every job that dies; null only when neither is so any more.
    troubled_at timestamp with time zone,
    -- The name of whom it belongs to, in small letters; triggers keep it, and the list is searched by it.
    person text DEFAULT ''::text NOT NULL,
    person_name text,
    person_kind text,
    -- What the list shows of that person, kept in the same way; null until a worker tells an old session.
    person_anonymous boolean,
    -- When `leased_by` claimed it; null where a version before did.
    leased_at timestamp with time zone,
    CONSTRAINT session_answers_only_known_turns CHECK ((answered_turn < next_turn)),
    CONSTRAINT session_collects_newest CHECK (((open_turn IS NULL) OR (open_turn = (next_turn - 1)))),
    CONSTRAINT session_flushes_only_ended_turns CHECK ((flushed_turn <= answered_turn)),
    CONSTRAINT session_hides_only_ended_turns CHECK ((base_turn <= answered_turn)),
    CONSTRAINT session_hides_what_was_erased CHECK ((erased_turn <= base_turn)),
    CONSTRAINT session_holds_what_comes_next CHECK (((held_after IS NULL) OR (held_after <= (answered_turn + 1)))),
    CONSTRAINT session_ratios_by_model CHECK ((jsonb_typeof(token_ratios) = 'object'::text)),
    CONSTRAINT session_shows_whole_person CHECK ((num_nulls(person_name, person_kind, person_anonymous) = ANY (ARRAY[0, 3])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

CREATE SEQUENCE sessions_id_seq;

ALTER SEQUENCE sessions_id_seq OWNED BY sessions.id;

-- Signs who a site's people are; sealed, and two at once so that one can replace the other.
CREATE TABLE site_secrets (
    site text NOT NULL,
    slot integer NOT NULL,
    secret_id text NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT site_has_two_secrets CHECK ((slot = ANY (ARRAY[1, 2])))
);

-- Where a widget may live, and for whom.
CREATE TABLE sites (
    name text NOT NULL,
    audience text DEFAULT 'personal'::text NOT NULL,
    allowed_origins text[] DEFAULT '{}'::text[] NOT NULL,
    agent_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    -- Checked by `shared/config/sites.py`.
    config jsonb DEFAULT '{}'::jsonb NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    CONSTRAINT site_audience CHECK ((audience = ANY (ARRAY['personal'::text, 'public'::text])))
);

-- What a scope (`total`, `party:7`, `session:9`) spent and has reserved on a day.
CREATE TABLE spend_days (
    scope text NOT NULL,
    day date NOT NULL,
    reserved_micro bigint DEFAULT 0 NOT NULL,
    spent_micro bigint DEFAULT 0 NOT NULL,
    warned_at timestamp with time zone,
    CONSTRAINT spend_is_not_negative CHECK (((reserved_micro >= 0) AND (spent_micro >= 0)))
);

-- Who may talk with a bot: a person, or a group by its negative id.
CREATE TABLE telegram_access (
    bot_id bigint NOT NULL,
    chat_id bigint NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    owner boolean DEFAULT false NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    username text DEFAULT ''::text NOT NULL,
    code text,
    asked_at timestamp with time zone DEFAULT now() NOT NULL,
    told_at timestamp with time zone,
    decided_at timestamp with time zone,
    decided_by text DEFAULT ''::text NOT NULL,
    CONSTRAINT telegram_access_decided CHECK (((decided_at IS NULL) = (state = 'pending'::text))),
    CONSTRAINT telegram_access_state CHECK ((state = ANY (ARRAY['pending'::text, 'allowed'::text, 'refused'::text])))
);

-- A bot of this deployment, and what ails it.
CREATE TABLE telegram_bots (
    bot_id bigint NOT NULL,
    username text DEFAULT ''::text NOT NULL,
    agent_id bigint NOT NULL,
    audience text DEFAULT 'personal'::text NOT NULL,
    access text DEFAULT 'pairing'::text NOT NULL,
    mode text DEFAULT 'polling'::text NOT NULL,
    problem text DEFAULT ''::text NOT NULL,
    heard_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT telegram_bot_access CHECK ((access = ANY (ARRAY['pairing'::text, 'allowlist'::text, 'open'::text]))),
    CONSTRAINT telegram_bot_audience CHECK ((audience = ANY (ARRAY['personal'::text, 'public'::text]))),
    CONSTRAINT telegram_bot_mode CHECK ((mode = ANY (ARRAY['polling'::text, 'webhook'::text])))
);

-- Which of our entries or deliveries a message of a chat is: for edits, replies, pins and reactions.
CREATE TABLE telegram_messages (
    bot_id bigint NOT NULL,
    chat_id bigint NOT NULL,
    message_id bigint NOT NULL,
    session_id bigint NOT NULL,
    seq bigint,
    turn_no bigint NOT NULL,
    part integer,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT telegram_message_in_or_out CHECK (((seq IS NULL) = (part IS NOT NULL)))
);

-- The inbox: every raw update, before it is acknowledged. Unique over all time, so not partitioned.
CREATE TABLE telegram_updates (
    bot_id bigint NOT NULL,
    update_id bigint NOT NULL,
    body jsonb NOT NULL,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    handled_at timestamp with time zone,
    error text DEFAULT ''::text NOT NULL
);

CREATE TABLE turn_context_audit (
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    session_id bigint NOT NULL,
    turn_id bigint NOT NULL,
    model_alias text NOT NULL,
    model_context_limit bigint NOT NULL,
    input_budget bigint NOT NULL,
    hard_limit bigint NOT NULL,
    estimated_input_tokens_before bigint NOT NULL,
    estimated_input_tokens_after_summary bigint CONSTRAINT turn_context_audit_estimated_input_tokens_after_summar_not_null NOT NULL,
    estimated_input_tokens_after_prune bigint NOT NULL,
    reported_input_tokens bigint,
    context_tokens bigint NOT NULL,
    summary_triggered boolean DEFAULT false NOT NULL,
    prune_triggered boolean DEFAULT false NOT NULL,
    overflow_rejected boolean DEFAULT false NOT NULL,
    parts jsonb DEFAULT '{}'::jsonb NOT NULL,
    part_hashes jsonb DEFAULT '[]'::jsonb NOT NULL,
    entry_from bigint DEFAULT 0 NOT NULL,
    entry_through bigint DEFAULT 0 NOT NULL,
    base_turn bigint DEFAULT 0 NOT NULL,
    head bigint,
    prune_seqs jsonb DEFAULT '[]'::jsonb NOT NULL,
    renderer_version integer DEFAULT 1 NOT NULL,
    recipe jsonb DEFAULT '{}'::jsonb NOT NULL,
    model_ms bigint
)
PARTITION BY RANGE (created_at);

ALTER TABLE turn_context_audit ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME turn_context_audit_id_seq
);

CREATE TABLE turn_context_audit_other (
    id bigint CONSTRAINT turn_context_audit_id_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT now() CONSTRAINT turn_context_audit_created_at_not_null NOT NULL,
    session_id bigint CONSTRAINT turn_context_audit_session_id_not_null NOT NULL,
    turn_id bigint CONSTRAINT turn_context_audit_turn_id_not_null NOT NULL,
    model_alias text CONSTRAINT turn_context_audit_model_alias_not_null NOT NULL,
    model_context_limit bigint CONSTRAINT turn_context_audit_model_context_limit_not_null NOT NULL,
    input_budget bigint CONSTRAINT turn_context_audit_input_budget_not_null NOT NULL,
    hard_limit bigint CONSTRAINT turn_context_audit_hard_limit_not_null NOT NULL,
    estimated_input_tokens_before bigint CONSTRAINT turn_context_audit_estimated_input_tokens_before_not_null NOT NULL,
    estimated_input_tokens_after_summary bigint CONSTRAINT turn_context_audit_estimated_input_tokens_after_summar_not_null NOT NULL,
    estimated_input_tokens_after_prune bigint CONSTRAINT turn_context_audit_estimated_input_tokens_after_prune_not_null NOT NULL,
    reported_input_tokens bigint,
    context_tokens bigint CONSTRAINT turn_context_audit_context_tokens_not_null NOT NULL,
    summary_triggered boolean DEFAULT false CONSTRAINT turn_context_audit_summary_triggered_not_null NOT NULL,
    prune_triggered boolean DEFAULT false CONSTRAINT turn_context_audit_prune_triggered_not_null NOT NULL,
    overflow_rejected boolean DEFAULT false CONSTRAINT turn_context_audit_overflow_rejected_not_null NOT NULL,
    parts jsonb DEFAULT '{}'::jsonb CONSTRAINT turn_context_audit_parts_not_null NOT NULL,
    part_hashes jsonb DEFAULT '[]'::jsonb CONSTRAINT turn_context_audit_part_hashes_not_null NOT NULL,
    entry_from bigint DEFAULT 0 CONSTRAINT turn_context_audit_entry_from_not_null NOT NULL,
    entry_through bigint DEFAULT 0 CONSTRAINT turn_context_audit_entry_through_not_null NOT NULL,
    base_turn bigint DEFAULT 0 CONSTRAINT turn_context_audit_base_turn_not_null NOT NULL,
    head bigint,
    prune_seqs jsonb DEFAULT '[]'::jsonb CONSTRAINT turn_context_audit_prune_seqs_not_null NOT NULL,
    renderer_version integer DEFAULT 1 CONSTRAINT turn_context_audit_renderer_version_not_null NOT NULL,
    recipe jsonb DEFAULT '{}'::jsonb CONSTRAINT turn_context_audit_recipe_not_null NOT NULL,
    model_ms bigint
);

-- Which turn an entry belongs to, and at which step; the order of the context.
CREATE TABLE turn_entries (
    session_id bigint NOT NULL,
    seq bigint NOT NULL,
    turn_no bigint NOT NULL,
    step integer NOT NULL
);

-- A model or tool round of a turn: an intent before each side effect, then its outcome.
CREATE TABLE turn_steps (
    session_id bigint NOT NULL,
    turn_no bigint NOT NULL,
    call_id text NOT NULL,
    tool text NOT NULL,
    status text DEFAULT 'intent'::text NOT NULL,
    epoch bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT step_status CHECK ((status = ANY (ARRAY['intent'::text, 'done'::text, 'failed'::text, 'unknown'::text])))
);

-- One or more messages of a person and all that is done about them.
CREATE TABLE turns (
    session_id bigint NOT NULL,
    turn_no bigint NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    channel text NOT NULL,
    address_id bigint NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    faults integer DEFAULT 0 NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    stop_requested boolean DEFAULT false NOT NULL,
    told_waiting boolean DEFAULT false NOT NULL,
    error_code text,
    opened_at timestamp with time zone DEFAULT now() NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone,
    -- Whose cap said no; null of others, and of those before it was written down. A reminder that met one
    -- is answered with its own words.
    refused_scope text,
    -- The provider, by host, that the last attempt was put back for; its next answer makes the turn due.
    waits_for text,
    CONSTRAINT turn_end_has_a_time CHECK (((ended_at IS NULL) = (state = ANY (ARRAY['open'::text, 'claimed'::text])))),
    CONSTRAINT turn_scope_refused CHECK (((refused_scope IS NULL) OR ((refused_scope = ANY (ARRAY['party'::text, 'session'::text, 'network'::text, 'visitors'::text, 'total'::text])) AND (state = ANY (ARRAY['refused'::text, 'answered'::text])) AND (error_code IS NOT NULL) AND (error_code = ANY (ARRAY['cap_reached'::text, 'hour_cap_reached'::text]))))),
    CONSTRAINT turn_state CHECK ((state = ANY (ARRAY['open'::text, 'claimed'::text, 'answered'::text, 'stopped'::text, 'refused'::text, 'failed'::text]))),
    CONSTRAINT turn_waits_after_asking CHECK (((waits_for IS NULL) OR ((waits_for <> ''::text) AND (attempt > 0))))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

-- That an answer may not have arrived, told in its chat with a button that brings it; one per turn. `due`
-- is still to be sent, `sending` while a request is under way, `shown` stands in the chat, and `over` is
-- not needed any more. Each new doubt about the same turn is a new round with a button of its own.
CREATE TABLE uncertain_notices (
    id bigint NOT NULL,
    session_id bigint NOT NULL,
    turn_no bigint NOT NULL,
    address_id bigint NOT NULL,
    state text DEFAULT 'due'::text NOT NULL,
    round integer DEFAULT 1 NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    chat_id bigint,
    message_id bigint,
    -- When it is looked at next: one that was told waits for what becomes of the answer.
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT uncertain_notice_is_somewhere CHECK ((num_nulls(chat_id, message_id) =
CASE state
    WHEN 'shown'::text THEN 0
    ELSE 2
END)),
    CONSTRAINT uncertain_notice_state CHECK ((state = ANY (ARRAY['due'::text, 'sending'::text, 'shown'::text, 'over'::text]))),
    CONSTRAINT uncertain_notice_tries CHECK (((round > 0) AND ((tries >= 0) AND (tries <= 9))))
);

CREATE SEQUENCE uncertain_notices_id_seq;

ALTER SEQUENCE uncertain_notices_id_seq OWNED BY uncertain_notices.id;

-- The ledger of model calls, thrown-away attempts included; only added to, partitioned by month.
CREATE TABLE usage (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    session_id bigint NOT NULL,
    party_id bigint NOT NULL,
    turn_no bigint,
    job_id bigint,
    purpose text NOT NULL,
    status text DEFAULT 'done'::text NOT NULL,
    model text NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    known boolean DEFAULT true NOT NULL,
    cost_micro bigint,
    request_id text DEFAULT ''::text NOT NULL,
    CONSTRAINT usage_purpose CHECK ((purpose = ANY (ARRAY['chat'::text, 'flush'::text, 'compact'::text, 'repair'::text, 'delegate'::text, 'tidy'::text]))),
    CONSTRAINT usage_status CHECK ((status = ANY (ARRAY['done'::text, 'aborted'::text])))
)
PARTITION BY RANGE (at);

ALTER TABLE usage ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME usage_id_seq
);

CREATE TABLE usage_other (
    id bigint CONSTRAINT usage_id_not_null NOT NULL,
    at timestamp with time zone DEFAULT now() CONSTRAINT usage_at_not_null NOT NULL,
    session_id bigint CONSTRAINT usage_session_id_not_null NOT NULL,
    party_id bigint CONSTRAINT usage_party_id_not_null NOT NULL,
    turn_no bigint,
    job_id bigint,
    purpose text CONSTRAINT usage_purpose_not_null NOT NULL,
    status text DEFAULT 'done'::text CONSTRAINT usage_status_not_null NOT NULL,
    model text CONSTRAINT usage_model_not_null NOT NULL,
    input_tokens bigint CONSTRAINT usage_input_tokens_not_null NOT NULL,
    output_tokens bigint CONSTRAINT usage_output_tokens_not_null NOT NULL,
    cache_read_tokens bigint CONSTRAINT usage_cache_read_tokens_not_null NOT NULL,
    cache_write_tokens bigint CONSTRAINT usage_cache_write_tokens_not_null NOT NULL,
    known boolean DEFAULT true CONSTRAINT usage_known_not_null NOT NULL,
    cost_micro bigint,
    request_id text DEFAULT ''::text CONSTRAINT usage_request_id_not_null NOT NULL,
    CONSTRAINT usage_purpose CHECK ((purpose = ANY (ARRAY['chat'::text, 'flush'::text, 'compact'::text, 'repair'::text, 'delegate'::text, 'tidy'::text]))),
    CONSTRAINT usage_status CHECK ((status = ANY (ARRAY['done'::text, 'aborted'::text])))
);

-- A browser's token, as a hash; it opens one address and nothing else.
CREATE TABLE visitors (
    token_hash bytea NOT NULL,
    site text NOT NULL,
    address_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    -- Given for a site's signature; it lives for a day, and its place is that of a signed-in person.
    identified boolean DEFAULT false NOT NULL
);

-- A living process; a lease holds as long as its beat is fresh.
CREATE TABLE workers (
    id bigint NOT NULL,
    role text NOT NULL,
    pid bigint NOT NULL,
    beat timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    stopped_at timestamp with time zone,
    health jsonb DEFAULT '{}'::jsonb NOT NULL
);

CREATE SEQUENCE workers_id_seq;

ALTER SEQUENCE workers_id_seq OWNED BY workers.id;

ALTER TABLE ONLY turn_context_audit ATTACH PARTITION turn_context_audit_other DEFAULT;

ALTER TABLE ONLY usage ATTACH PARTITION usage_other DEFAULT;

ALTER TABLE ONLY addresses ALTER COLUMN id SET DEFAULT nextval('addresses_id_seq'::regclass);

ALTER TABLE ONLY agents ALTER COLUMN id SET DEFAULT nextval('agents_id_seq'::regclass);

ALTER TABLE ONLY alert_sends ALTER COLUMN id SET DEFAULT nextval('alert_sends_id_seq'::regclass);

ALTER TABLE ONLY alerts ALTER COLUMN id SET DEFAULT nextval('alerts_id_seq'::regclass);

ALTER TABLE ONLY api_keys ALTER COLUMN id SET DEFAULT nextval('api_keys_id_seq'::regclass);

ALTER TABLE ONLY artifacts ALTER COLUMN id SET DEFAULT nextval('artifacts_id_seq'::regclass);

ALTER TABLE ONLY attachments ALTER COLUMN id SET DEFAULT nextval('attachments_id_seq'::regclass);

ALTER TABLE ONLY audit ALTER COLUMN id SET DEFAULT nextval('audit_id_seq'::regclass);

ALTER TABLE ONLY checkpoints ALTER COLUMN id SET DEFAULT nextval('checkpoints_id_seq'::regclass);

ALTER TABLE ONLY entries ALTER COLUMN at SET DEFAULT now();

ALTER TABLE ONLY erasures ALTER COLUMN id SET DEFAULT nextval('erasures_id_seq'::regclass);

ALTER TABLE ONLY flushes ALTER COLUMN id SET DEFAULT nextval('flushes_id_seq'::regclass);

ALTER TABLE ONLY handovers ALTER COLUMN id SET DEFAULT nextval('handovers_id_seq'::regclass);

ALTER TABLE ONLY jobs ALTER COLUMN id SET DEFAULT nextval('jobs_id_seq'::regclass);

ALTER TABLE ONLY link_guesses ALTER COLUMN id SET DEFAULT nextval('link_guesses_id_seq'::regclass);

ALTER TABLE ONLY links ALTER COLUMN id SET DEFAULT nextval('links_id_seq'::regclass);

ALTER TABLE ONLY notes ALTER COLUMN id SET DEFAULT nextval('notes_id_seq'::regclass);

ALTER TABLE ONLY operators ALTER COLUMN id SET DEFAULT nextval('operators_id_seq'::regclass);

ALTER TABLE ONLY parties ALTER COLUMN id SET DEFAULT nextval('parties_id_seq'::regclass);

ALTER TABLE ONLY party_links ALTER COLUMN id SET DEFAULT nextval('party_links_id_seq'::regclass);

ALTER TABLE ONLY reminders ALTER COLUMN id SET DEFAULT nextval('reminders_id_seq'::regclass);

ALTER TABLE ONLY reservations ALTER COLUMN id SET DEFAULT nextval('reservations_id_seq'::regclass);

ALTER TABLE ONLY sessions ALTER COLUMN id SET DEFAULT nextval('sessions_id_seq'::regclass);

ALTER TABLE ONLY uncertain_notices ALTER COLUMN id SET DEFAULT nextval('uncertain_notices_id_seq'::regclass);

ALTER TABLE ONLY workers ALTER COLUMN id SET DEFAULT nextval('workers_id_seq'::regclass);

ALTER TABLE ONLY links ADD CONSTRAINT active_links_do_not_overlap EXCLUDE USING gist (session_id WITH =, int8range(from_turn, through_turn, '[]'::text) WITH &&) WHERE (active) DEFERRABLE INITIALLY DEFERRED;

ALTER TABLE ONLY addresses ADD CONSTRAINT address_is_one_place UNIQUE (channel, account, chat, thread);

ALTER TABLE ONLY addresses ADD CONSTRAINT addresses_pkey PRIMARY KEY (id);

ALTER TABLE ONLY agents ADD CONSTRAINT agents_name_key UNIQUE (name);

ALTER TABLE ONLY agents ADD CONSTRAINT agents_pkey PRIMARY KEY (id);

ALTER TABLE ONLY alert_sends ADD CONSTRAINT alert_is_sent_once UNIQUE (alert_id, target, phase);

ALTER TABLE ONLY alert_sends ADD CONSTRAINT alert_sends_pkey PRIMARY KEY (id);

ALTER TABLE ONLY alerts ADD CONSTRAINT alerts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY alerts ADD CONSTRAINT alerts_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY api_keys ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);

ALTER TABLE ONLY api_keys ADD CONSTRAINT api_keys_token_hash_key UNIQUE (token_hash);

ALTER TABLE ONLY artifacts ADD CONSTRAINT artifact_is_stored_once UNIQUE (session_id, seq, sha256);

ALTER TABLE ONLY artifacts ADD CONSTRAINT artifacts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY artifacts ADD CONSTRAINT artifacts_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY attachments ADD CONSTRAINT attachment_arrives_once UNIQUE (session_id, arrived_sha256);

ALTER TABLE ONLY attachments ADD CONSTRAINT attachments_pkey PRIMARY KEY (id);

ALTER TABLE ONLY attachments ADD CONSTRAINT attachments_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY audit ADD CONSTRAINT audit_hash_key UNIQUE (hash);

ALTER TABLE ONLY audit ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY checkpoints ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (id);

ALTER TABLE ONLY deliveries ADD CONSTRAINT deliveries_pkey PRIMARY KEY (session_id, turn_no, part);

ALTER TABLE ONLY deployment ADD CONSTRAINT deployment_pkey PRIMARY KEY (id);

ALTER TABLE ONLY entry_rows ADD CONSTRAINT entry_rows_pkey PRIMARY KEY (session_id, seq);

ALTER TABLE ONLY erasure_wishes ADD CONSTRAINT erasure_wishes_pkey PRIMARY KEY (session_id);

ALTER TABLE ONLY erasures ADD CONSTRAINT erasures_pkey PRIMARY KEY (id);

ALTER TABLE ONLY events ADD CONSTRAINT events_pkey PRIMARY KEY (session_id, event_seq);

ALTER TABLE ONLY feedback ADD CONSTRAINT feedback_pkey PRIMARY KEY (session_id, turn_no);

ALTER TABLE ONLY flushes ADD CONSTRAINT flush_once_per_range UNIQUE (session_id, cycle, threshold, through_turn);

ALTER TABLE ONLY flushes ADD CONSTRAINT flushes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY flushes ADD CONSTRAINT flushes_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY handovers ADD CONSTRAINT handovers_call_key_key UNIQUE (call_key);

ALTER TABLE ONLY handovers ADD CONSTRAINT handovers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY jobs ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY knowledge ADD CONSTRAINT knowledge_pkey PRIMARY KEY (agent_id, path, place);

ALTER TABLE ONLY leases ADD CONSTRAINT leases_pkey PRIMARY KEY (name);

ALTER TABLE ONLY link_guesses ADD CONSTRAINT link_guesses_pkey PRIMARY KEY (id);

ALTER TABLE ONLY links ADD CONSTRAINT links_pkey PRIMARY KEY (id);

ALTER TABLE ONLY links ADD CONSTRAINT links_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY login_links ADD CONSTRAINT login_links_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY login_places ADD CONSTRAINT login_places_pkey PRIMARY KEY (key);

ALTER TABLE ONLY login_tries ADD CONSTRAINT login_tries_pkey PRIMARY KEY (key);

ALTER TABLE ONLY notes ADD CONSTRAINT note_is_kept_once UNIQUE (party_id, scope, hash);

ALTER TABLE ONLY note_lists ADD CONSTRAINT note_lists_pkey PRIMARY KEY (session_id, address_id);

ALTER TABLE ONLY note_words ADD CONSTRAINT note_words_pkey PRIMARY KEY (note_id);

ALTER TABLE ONLY notes ADD CONSTRAINT notes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY notes ADD CONSTRAINT notes_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY one_time_codes ADD CONSTRAINT one_time_codes_pkey PRIMARY KEY (code_hash);

ALTER TABLE ONLY operator_factors ADD CONSTRAINT operator_factors_pkey PRIMARY KEY (operator_id);

ALTER TABLE ONLY operators ADD CONSTRAINT operator_identity UNIQUE (issuer, subject);

ALTER TABLE ONLY operator_sessions ADD CONSTRAINT operator_sessions_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY operator_sessions ADD CONSTRAINT operator_sessions_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY operator_steps ADD CONSTRAINT operator_steps_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY operators ADD CONSTRAINT operators_name_key UNIQUE (name);

ALTER TABLE ONLY operators ADD CONSTRAINT operators_pkey PRIMARY KEY (id);

ALTER TABLE ONLY operators ADD CONSTRAINT operators_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY parties ADD CONSTRAINT parties_pkey PRIMARY KEY (id);

ALTER TABLE ONLY parties ADD CONSTRAINT parties_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY party_links ADD CONSTRAINT party_links_pkey PRIMARY KEY (id);

ALTER TABLE ONLY passages ADD CONSTRAINT passage_is_indexed_once UNIQUE (session_id, seq, part);

ALTER TABLE ONLY passages ADD CONSTRAINT passages_pkey PRIMARY KEY (session_id, number);

ALTER TABLE ONLY pins ADD CONSTRAINT pins_pkey PRIMARY KEY (session_id, seq);

ALTER TABLE ONLY prompt_parts ADD CONSTRAINT prompt_parts_pkey PRIMARY KEY (sha256);

ALTER TABLE ONLY prune_decisions ADD CONSTRAINT prune_decisions_pkey PRIMARY KEY (session_id, seq, turn_no);

ALTER TABLE ONLY recall_words ADD CONSTRAINT recall_words_pkey PRIMARY KEY (lane, owner, lexeme);

ALTER TABLE ONLY recovery_codes ADD CONSTRAINT recovery_codes_code_hash_key UNIQUE (code_hash);

ALTER TABLE ONLY recovery_codes ADD CONSTRAINT recovery_codes_pkey PRIMARY KEY (address_id);

ALTER TABLE ONLY reminders ADD CONSTRAINT reminders_key_key UNIQUE (key);

ALTER TABLE ONLY reminders ADD CONSTRAINT reminders_pkey PRIMARY KEY (id);

ALTER TABLE ONLY reminders ADD CONSTRAINT reminders_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY reservations ADD CONSTRAINT reservations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY session_list ADD CONSTRAINT session_list_pkey PRIMARY KEY (id);

ALTER TABLE ONLY session_spend ADD CONSTRAINT session_spend_pkey PRIMARY KEY (session_id, purpose, model);

ALTER TABLE ONLY session_totals ADD CONSTRAINT session_totals_pkey PRIMARY KEY (session_id);

ALTER TABLE ONLY sessions ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sessions ADD CONSTRAINT sessions_public_id_key UNIQUE (public_id);

ALTER TABLE ONLY site_secrets ADD CONSTRAINT site_secrets_pkey PRIMARY KEY (site, slot);

ALTER TABLE ONLY sites ADD CONSTRAINT sites_pkey PRIMARY KEY (name);

ALTER TABLE ONLY spend_days ADD CONSTRAINT spend_days_pkey PRIMARY KEY (scope, day);

ALTER TABLE ONLY telegram_access ADD CONSTRAINT telegram_access_pkey PRIMARY KEY (bot_id, chat_id);

ALTER TABLE ONLY telegram_bots ADD CONSTRAINT telegram_bots_pkey PRIMARY KEY (bot_id);

ALTER TABLE ONLY telegram_messages ADD CONSTRAINT telegram_messages_pkey PRIMARY KEY (bot_id, chat_id, message_id);

ALTER TABLE ONLY telegram_updates ADD CONSTRAINT telegram_updates_pkey PRIMARY KEY (bot_id, update_id);

ALTER TABLE ONLY turn_context_audit ADD CONSTRAINT turn_context_audit_pkey PRIMARY KEY (id, created_at);

ALTER TABLE ONLY turn_context_audit_other ADD CONSTRAINT turn_context_audit_other_pkey PRIMARY KEY (id, created_at);

ALTER TABLE ONLY turn_entries ADD CONSTRAINT turn_entries_pkey PRIMARY KEY (session_id, seq);

ALTER TABLE ONLY turn_entries ADD CONSTRAINT turn_step_is_one_entry UNIQUE (session_id, turn_no, step);

ALTER TABLE ONLY turn_steps ADD CONSTRAINT turn_steps_pkey PRIMARY KEY (session_id, turn_no, call_id);

ALTER TABLE ONLY turns ADD CONSTRAINT turns_pkey PRIMARY KEY (session_id, turn_no);

ALTER TABLE ONLY uncertain_notices ADD CONSTRAINT uncertain_notice_of_turn UNIQUE (session_id, turn_no);

ALTER TABLE ONLY uncertain_notices ADD CONSTRAINT uncertain_notices_pkey PRIMARY KEY (id);

ALTER TABLE ONLY usage ADD CONSTRAINT usage_pkey PRIMARY KEY (id, at);

ALTER TABLE ONLY usage_other ADD CONSTRAINT usage_other_pkey PRIMARY KEY (id, at);

ALTER TABLE ONLY visitors ADD CONSTRAINT visitors_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY workers ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX addresses_by_party ON addresses USING btree (party_id);

CREATE INDEX addresses_by_pieces ON addresses USING gin (name_pieces(((title || ' '::text) || chat))) WHERE (channel <> 'web'::text);

CREATE INDEX addresses_by_session ON addresses USING btree (session_id);

CREATE UNIQUE INDEX alert_is_open_once ON alerts USING btree (kind, key) WHERE (ended_at IS NULL);

CREATE INDEX alert_sends_by_target ON alert_sends USING btree (target, id);

CREATE INDEX alert_sends_waiting ON alert_sends USING btree (due_at) WHERE (state = ANY (ARRAY['due'::text, 'sending'::text]));

CREATE INDEX alerts_by_time ON alerts USING btree (opened_at, id);

CREATE UNIQUE INDEX api_key_of_a_name ON api_keys USING btree (name) WHERE (revoked_at IS NULL);

CREATE INDEX audit_by_action ON audit USING btree (action, id);

CREATE INDEX audit_by_actor ON audit USING btree (actor, id);

CREATE INDEX audit_by_time ON audit USING btree (at);

CREATE INDEX checkpoints_of_session ON checkpoints USING btree (session_id, id);

CREATE INDEX deliveries_in_doubt ON deliveries USING btree (created_at, session_id, turn_no, part) WHERE (state = ANY (ARRAY['uncertain'::text, 'dead'::text]));

CREATE INDEX deliveries_pending ON deliveries USING btree (channel, created_at) WHERE (state = ANY (ARRAY['queued'::text, 'sending'::text, 'sent'::text]));

CREATE UNIQUE INDEX entry_is_stored_once ON entry_rows USING btree (session_id, dedupe_key) WHERE (dedupe_key IS NOT NULL);

CREATE INDEX erasures_running ON erasures USING btree (id) WHERE (state = 'running'::text);

CREATE INDEX flushes_of_session ON flushes USING btree (session_id, id);

CREATE UNIQUE INDEX handover_is_open_once ON handovers USING btree (session_id) WHERE (ended_at IS NULL);

CREATE INDEX handovers_by_session ON handovers USING btree (session_id, asked_at);

CREATE INDEX handovers_untold ON handovers USING btree (id) WHERE (told = ANY (ARRAY['queued'::text, 'sending'::text]));

CREATE UNIQUE INDEX job_is_asked_once ON jobs USING btree (key) WHERE (state = ANY (ARRAY['due'::text, 'running'::text]));

CREATE INDEX jobs_dead ON jobs USING btree (id) WHERE (state = 'dead'::text);

CREATE INDEX jobs_dead_by_session ON jobs USING btree (session_id, id) WHERE (state = 'dead'::text);

CREATE INDEX jobs_dead_by_time ON jobs USING btree (ended_at) WHERE ((state = 'dead'::text) AND (NOT (outcome ? 'cancelled'::text)));

CREATE INDEX jobs_done_by_time ON jobs USING btree (ended_at) WHERE (state = 'done'::text);

CREATE INDEX jobs_of_kind ON jobs USING btree (kind, id);

CREATE INDEX jobs_of_session ON jobs USING btree (session_id, id);

CREATE INDEX jobs_waiting ON jobs USING btree (due_at) WHERE (state = ANY (ARRAY['due'::text, 'running'::text]));

CREATE INDEX knowledge_by_word ON knowledge USING gin (recall_keys(agent_id, vector)) WITH (fastupdate=off);

CREATE INDEX link_codes_of_party ON one_time_codes USING btree (party_id, created_at) WHERE (purpose = 'link'::text);

CREATE INDEX link_guesses_by_time ON link_guesses USING btree (at);

CREATE INDEX links_of_session ON links USING btree (session_id, id);

CREATE INDEX links_undone ON links USING btree (session_id) WHERE (undone_at IS NOT NULL);

CREATE INDEX links_written ON links USING btree (id) WHERE (kind = ANY (ARRAY['summary'::text, 'digest'::text]));

CREATE INDEX list_by_activity ON session_list USING btree (last_active_at, id) INCLUDE (agent_id, person);

CREATE INDEX list_by_cache ON session_list USING btree (COALESCE((
CASE
    WHEN (((input_tokens + cache_read_tokens) + cache_write_tokens) > 0) THEN (((cache_read_tokens)::numeric * 100.0) / (((input_tokens + cache_read_tokens) + cache_write_tokens))::numeric)
    ELSE NULL::numeric
END)::double precision, ('-1'::integer)::double precision), id);

CREATE INDEX list_by_context ON session_list USING btree (COALESCE((
CASE
    WHEN (context_limit > 0) THEN (((context_tokens)::numeric * 100.0) / (context_limit)::numeric)
    ELSE NULL::numeric
END)::double precision, ('-1'::integer)::double precision), id);

CREATE INDEX list_by_cost ON session_list USING btree (COALESCE(
CASE
    WHEN ((cost_unknown_calls > 0) AND (cost_micro = 0)) THEN NULL::bigint
    ELSE cost_micro
END, ('-1'::integer)::bigint), id);

CREATE INDEX list_by_input ON session_list USING btree ((((input_tokens + cache_read_tokens) + cache_write_tokens)), id);

CREATE INDEX list_by_output ON session_list USING btree (output_tokens, id);

CREATE INDEX list_by_turns ON session_list USING btree (next_turn, id);

CREATE INDEX list_filling ON session_list USING btree (last_active_at, id) WHERE (COALESCE((
CASE
    WHEN (context_limit > 0) THEN (((context_tokens)::numeric * 100.0) / (context_limit)::numeric)
    ELSE NULL::numeric
END)::double precision, ('-1'::integer)::double precision) >= (70)::double precision);

CREATE INDEX list_nearly_full ON session_list USING btree (last_active_at, id) WHERE (COALESCE((
CASE
    WHEN (context_limit > 0) THEN (((context_tokens)::numeric * 100.0) / (context_limit)::numeric)
    ELSE NULL::numeric
END)::double precision, ('-1'::integer)::double precision) >= (90)::double precision);

CREATE INDEX list_troubled ON session_list USING btree (last_active_at, id) WHERE (troubled_at IS NOT NULL);

CREATE INDEX login_places_of_operator ON login_places USING btree (operator_id, at);

CREATE UNIQUE INDEX note_of_call ON notes USING btree (call_key) WHERE (call_key IS NOT NULL);

CREATE INDEX notes_by_pieces ON notes USING gin (name_pieces(((text || ' '::text) || subject)));

CREATE INDEX notes_by_time ON notes USING btree (created_at);

CREATE INDEX notes_by_word ON note_words USING gin (recall_keys(party_id, vector)) WITH (fastupdate=off);

CREATE INDEX notes_in_core ON notes USING btree (party_id, scope, importance DESC, id DESC) WHERE ((superseded_by IS NULL) AND (forgotten_at IS NULL) AND (expired_at IS NULL) AND (authority <> 'tool'::text));

CREATE INDEX notes_of_party ON notes USING btree (party_id, scope, id);

CREATE INDEX notes_of_party_link ON notes USING btree (party_link_id) WHERE (party_link_id IS NOT NULL);

CREATE INDEX notes_put_away ON notes USING btree (undo_until) WHERE (undo_until IS NOT NULL);

CREATE UNIQUE INDEX one_running_job_per_session ON jobs USING btree (session_id) WHERE (state = 'running'::text);

CREATE INDEX operator_steps_of_operator ON operator_steps USING btree (operator_id);

CREATE INDEX parties_by_name ON parties USING btree (lower(display_name) COLLATE "C", id);

CREATE INDEX parties_by_pieces ON parties USING gin (name_pieces(display_name));

CREATE INDEX parties_merged ON parties USING btree (merged_into) WHERE (merged_into IS NOT NULL);

CREATE INDEX parties_on_hold ON parties USING btree (id) WHERE (on_hold_since IS NOT NULL);

CREATE INDEX parties_seen_somewhere ON parties USING btree (network_at) WHERE (network IS NOT NULL);

CREATE UNIQUE INDEX party_is_joined_once ON party_links USING btree (joined_party_id) WHERE (unlinked_at IS NULL);

CREATE INDEX party_links_of_kept ON party_links USING btree (kept_party_id);

CREATE INDEX passages_by_time ON passages USING btree (session_id, at);

CREATE INDEX passages_by_word ON passages USING gin (recall_keys(session_id, vector)) WITH (fastupdate=off);

CREATE UNIQUE INDEX reminders_by_turn ON reminders USING btree (session_id, turn_no) WHERE (turn_no IS NOT NULL);

CREATE INDEX reminders_claimed ON reminders USING btree (id) WHERE (state = 'claimed'::text);

CREATE INDEX reminders_due ON reminders USING btree (tell_at) WHERE (state = 'pending'::text);

CREATE INDEX reminders_of_party ON reminders USING btree (party_id, due_at);

CREATE INDEX reservations_held ON reservations USING btree (created_at) WHERE (state = 'held'::text);

CREATE UNIQUE INDEX session_is_archived_once ON party_links USING btree (archived_session_id) WHERE (unlinked_at IS NULL);

CREATE INDEX sessions_by_agent ON sessions USING btree (agent_id, id);

CREATE INDEX sessions_by_channel ON sessions USING btree (last_channel, id);

CREATE INDEX sessions_by_party ON sessions USING btree (party_id);

CREATE INDEX sessions_troubled_by_id ON sessions USING btree (id) WHERE (troubled_at IS NOT NULL);

CREATE INDEX sessions_unflushed ON sessions USING btree (id) WHERE (flushed_turn < base_turn);

CREATE INDEX sessions_unindexed ON sessions USING btree (id) WHERE (indexed_turn < base_turn);

CREATE INDEX sessions_without_person ON sessions USING btree (id) WHERE (person_kind IS NULL);

CREATE INDEX spend_days_by_day ON spend_days USING btree (day);

CREATE INDEX spend_days_near ON spend_days USING btree (day) WHERE (warned_at IS NOT NULL);

CREATE INDEX steps_by_time ON turn_steps USING brin (at) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX telegram_access_code ON telegram_access USING btree (code) WHERE (state = 'pending'::text);

CREATE INDEX telegram_messages_of_turn ON telegram_messages USING btree (session_id, turn_no);

CREATE INDEX telegram_updates_new ON telegram_updates USING btree (bot_id, update_id) WHERE (handled_at IS NULL);

CREATE INDEX totals_by_compactions ON session_totals USING btree (compaction_count, session_id);

CREATE INDEX turn_context_audit_of_session ON ONLY turn_context_audit USING btree (session_id, turn_id, id);

CREATE INDEX turn_context_audit_other_session_id_turn_id_id_idx ON turn_context_audit_other USING btree (session_id, turn_id, id);

CREATE INDEX turns_by_time ON turns USING brin (opened_at) WITH (pages_per_range='16', autosummarize='on');

CREATE INDEX turns_failed ON turns USING btree (session_id, turn_no) WHERE (error_code IS NOT NULL);

CREATE INDEX turns_unended ON turns USING btree (session_id, turn_no) WHERE (ended_at IS NULL);

CREATE INDEX uncertain_notices_open ON uncertain_notices USING btree (due_at) WHERE (state <> 'over'::text);

CREATE INDEX usage_by_time ON ONLY usage USING brin (at) WITH (pages_per_range='16', autosummarize='on');

CREATE INDEX usage_of_session ON ONLY usage USING btree (session_id, id);

CREATE INDEX usage_other_at_idx ON usage_other USING brin (at) WITH (pages_per_range='16', autosummarize='on');

CREATE INDEX usage_other_session_id_id_idx ON usage_other USING btree (session_id, id);

CREATE INDEX visitors_by_address ON visitors USING btree (address_id);

ALTER INDEX turn_context_audit_pkey ATTACH PARTITION turn_context_audit_other_pkey;

ALTER INDEX turn_context_audit_of_session ATTACH PARTITION turn_context_audit_other_session_id_turn_id_id_idx;

ALTER INDEX usage_by_time ATTACH PARTITION usage_other_at_idx;

ALTER INDEX usage_pkey ATTACH PARTITION usage_other_pkey;

ALTER INDEX usage_of_session ATTACH PARTITION usage_other_session_id_id_idx;

CREATE TRIGGER audit_is_only_added BEFORE DELETE OR UPDATE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_is_only_added();

ALTER TABLE audit ENABLE ALWAYS TRIGGER audit_is_only_added;

CREATE TRIGGER count_added_words AFTER INSERT ON knowledge REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_knowledge();

CREATE TRIGGER count_added_words AFTER INSERT ON passages REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_passages();

CREATE TRIGGER count_gone_words AFTER DELETE ON knowledge REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_knowledge();

CREATE TRIGGER count_gone_words AFTER DELETE ON passages REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_words_of_passages();

CREATE TRIGGER entries_are_only_added BEFORE DELETE OR UPDATE ON entry_rows FOR EACH ROW EXECUTE FUNCTION entries_are_only_added();

CREATE TRIGGER entries_are_rows INSTEAD OF INSERT OR DELETE OR UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION entries_are_rows();

CREATE TRIGGER erasures_are_not_emptied BEFORE TRUNCATE ON erasures FOR EACH STATEMENT EXECUTE FUNCTION erasures_stay_on_record();

ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_are_not_emptied;

CREATE TRIGGER erasures_stay_on_record BEFORE DELETE OR UPDATE ON erasures FOR EACH ROW EXECUTE FUNCTION erasures_stay_on_record();

ALTER TABLE erasures ENABLE ALWAYS TRIGGER erasures_stay_on_record;

CREATE TRIGGER forget_words_of_note AFTER UPDATE OF text, forgotten_at, superseded_by, party_id ON notes FOR EACH ROW EXECUTE FUNCTION forget_words_of_note();

CREATE TRIGGER list_hears_of_session
  AFTER UPDATE OF party_id, agent_id, next_turn, context_tokens, context_limit, last_active_at,
                  troubled_at, last_channel, leased_by ON sessions
  FOR EACH ROW WHEN (
    OLD.leased_by IS NOT NULL AND NEW.leased_by IS NULL
    OR (OLD.leased_by IS NOT NULL OR NEW.leased_by IS NULL)
       AND (OLD.party_id, OLD.agent_id, OLD.next_turn, OLD.context_tokens, OLD.context_limit,
            OLD.last_active_at, OLD.troubled_at, OLD.last_channel)
        IS DISTINCT FROM
           (NEW.party_id, NEW.agent_id, NEW.next_turn, NEW.context_tokens, NEW.context_limit,
            NEW.last_active_at, NEW.troubled_at, NEW.last_channel))
  EXECUTE FUNCTION list_hears_of_session();

CREATE TRIGGER list_hears_of_totals AFTER INSERT OR UPDATE ON session_totals FOR EACH ROW EXECUTE FUNCTION list_hears_of_totals();

CREATE TRIGGER notes_not_of_erased_turns BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION nothing_of_erased_turns();

CREATE TRIGGER session_begins_with_its_person BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION session_knows_its_person();

CREATE TRIGGER session_changes_its_person AFTER UPDATE OF party_id ON sessions FOR EACH ROW WHEN ((new.party_id <> old.party_id)) EXECUTE FUNCTION session_knows_its_person();

CREATE TRIGGER session_is_listed AFTER INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION session_is_listed();

CREATE TRIGGER session_is_listed_by_name AFTER UPDATE OF person ON sessions FOR EACH ROW WHEN ((new.person <> old.person)) EXECUTE FUNCTION session_is_listed_by_name();

CREATE TRIGGER sessions_know_a_new_name AFTER UPDATE OF display_name, kind, anonymous ON parties
  FOR EACH ROW WHEN ((NEW.display_name, NEW.kind, NEW.anonymous)
                     IS DISTINCT FROM (OLD.display_name, OLD.kind, OLD.anonymous))
  EXECUTE FUNCTION sessions_know_a_new_name();

CREATE TRIGGER totals_add_up BEFORE INSERT OR UPDATE ON session_totals FOR EACH ROW EXECUTE FUNCTION totals_add_up();

CREATE TRIGGER uncertain_parts_are_seen_to AFTER UPDATE OF state ON deliveries FOR EACH ROW WHEN (((new.channel = 'telegram'::text) AND ((new.state = 'uncertain'::text) <> (old.state = 'uncertain'::text)))) EXECUTE FUNCTION uncertain_parts_are_told();

CREATE TRIGGER uncertain_parts_are_told AFTER INSERT ON deliveries FOR EACH ROW WHEN (((new.channel = 'telegram'::text) AND (new.state = 'uncertain'::text))) EXECUTE FUNCTION uncertain_parts_are_told();

ALTER TABLE ONLY addresses ADD CONSTRAINT addresses_party_id_fkey FOREIGN KEY (party_id) REFERENCES parties(id);

ALTER TABLE ONLY addresses ADD CONSTRAINT addresses_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY alert_sends ADD CONSTRAINT alert_send_alert FOREIGN KEY (alert_id) REFERENCES alerts(id) ON DELETE CASCADE;

ALTER TABLE ONLY api_keys ADD CONSTRAINT api_key_agent FOREIGN KEY (agent_id) REFERENCES agents(id) ON DELETE CASCADE;

ALTER TABLE ONLY api_keys ADD CONSTRAINT api_key_site FOREIGN KEY (site) REFERENCES sites(name) ON DELETE CASCADE;

ALTER TABLE ONLY artifacts ADD CONSTRAINT artifact_entry FOREIGN KEY (session_id, seq) REFERENCES entry_rows(session_id, seq);

ALTER TABLE ONLY artifacts ADD CONSTRAINT artifacts_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY attachments ADD CONSTRAINT attachments_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY checkpoints ADD CONSTRAINT checkpoint_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY deliveries ADD CONSTRAINT deliveries_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

ALTER TABLE ONLY deliveries ADD CONSTRAINT delivery_turn FOREIGN KEY (session_id, turn_no) REFERENCES turns(session_id, turn_no);

ALTER TABLE ONLY entry_rows ADD CONSTRAINT entry_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY erasure_wishes ADD CONSTRAINT erasure_wishes_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY events ADD CONSTRAINT event_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY feedback ADD CONSTRAINT feedback_turn FOREIGN KEY (session_id, turn_no) REFERENCES turns(session_id, turn_no);

ALTER TABLE ONLY flushes ADD CONSTRAINT flush_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY handovers ADD CONSTRAINT handovers_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

ALTER TABLE ONLY handovers ADD CONSTRAINT handovers_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES operators(id);

ALTER TABLE ONLY handovers ADD CONSTRAINT handovers_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY jobs ADD CONSTRAINT jobs_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY knowledge ADD CONSTRAINT knowledge_agent_id_fkey FOREIGN KEY (agent_id) REFERENCES agents(id);

ALTER TABLE ONLY leases ADD CONSTRAINT leases_leased_by_fkey FOREIGN KEY (leased_by) REFERENCES workers(id);

ALTER TABLE ONLY link_guesses ADD CONSTRAINT link_guesses_party_id_fkey FOREIGN KEY (party_id) REFERENCES parties(id);

ALTER TABLE ONLY link_guesses ADD CONSTRAINT link_guesses_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY links ADD CONSTRAINT link_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY session_list ADD CONSTRAINT listed_session FOREIGN KEY (id) REFERENCES sessions(id) ON DELETE CASCADE;

ALTER TABLE ONLY login_links ADD CONSTRAINT login_links_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES operators(id);

ALTER TABLE ONLY login_places ADD CONSTRAINT login_places_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES operators(id);

ALTER TABLE ONLY login_tries ADD CONSTRAINT login_tries_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES operators(id);

ALTER TABLE ONLY note_lists ADD CONSTRAINT note_lists_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY note_words ADD CONSTRAINT note_words_note FOREIGN KEY (note_id) REFERENCES notes(id) ON DELETE CASCADE;

ALTER TABLE ONLY notes ADD CONSTRAINT notes_party_id_fkey FOREIGN KEY (party_id) REFERENCES parties(id);

ALTER TABLE ONLY notes ADD CONSTRAINT notes_party_link_id_fkey FOREIGN KEY (party_link_id) REFERENCES party_links(id);

ALTER TABLE ONLY one_time_codes ADD CONSTRAINT one_time_codes_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

ALTER TABLE ONLY one_time_codes ADD CONSTRAINT one_time_codes_bot_id_fkey FOREIGN KEY (bot_id) REFERENCES telegram_bots(bot_id);

ALTER TABLE ONLY one_time_codes ADD CONSTRAINT one_time_codes_party_id_fkey FOREIGN KEY (party_id) REFERENCES parties(id);

ALTER TABLE ONLY operator_factors ADD CONSTRAINT operator_factors_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES operators(id);

ALTER TABLE ONLY operator_sessions ADD CONSTRAINT operator_sessions_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES operators(id);

ALTER TABLE ONLY operator_steps ADD CONSTRAINT operator_steps_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES operators(id);

ALTER TABLE ONLY parties ADD CONSTRAINT parties_merged_into_fkey FOREIGN KEY (merged_into) REFERENCES parties(id);

ALTER TABLE ONLY party_links ADD CONSTRAINT party_links_archived_session_id_fkey FOREIGN KEY (archived_session_id) REFERENCES sessions(id);

ALTER TABLE ONLY party_links ADD CONSTRAINT party_links_joined_party_id_fkey FOREIGN KEY (joined_party_id) REFERENCES parties(id);

ALTER TABLE ONLY party_links ADD CONSTRAINT party_links_kept_party_id_fkey FOREIGN KEY (kept_party_id) REFERENCES parties(id);

ALTER TABLE ONLY party_links ADD CONSTRAINT party_links_kept_session_id_fkey FOREIGN KEY (kept_session_id) REFERENCES sessions(id);

ALTER TABLE ONLY passages ADD CONSTRAINT passage_entry FOREIGN KEY (session_id, seq) REFERENCES entry_rows(session_id, seq);

ALTER TABLE ONLY pins ADD CONSTRAINT pin_entry FOREIGN KEY (session_id, seq) REFERENCES entry_rows(session_id, seq);

ALTER TABLE ONLY prune_decisions ADD CONSTRAINT prune_entry FOREIGN KEY (session_id, seq) REFERENCES entry_rows(session_id, seq);

ALTER TABLE ONLY recovery_codes ADD CONSTRAINT recovery_codes_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

ALTER TABLE ONLY reminders ADD CONSTRAINT reminders_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

ALTER TABLE ONLY reminders ADD CONSTRAINT reminders_party_id_fkey FOREIGN KEY (party_id) REFERENCES parties(id);

ALTER TABLE ONLY reminders ADD CONSTRAINT reminders_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY sessions ADD CONSTRAINT sessions_agent_id_fkey FOREIGN KEY (agent_id) REFERENCES agents(id);

ALTER TABLE ONLY sessions ADD CONSTRAINT sessions_party_id_fkey FOREIGN KEY (party_id) REFERENCES parties(id);

ALTER TABLE ONLY site_secrets ADD CONSTRAINT site_secret_site FOREIGN KEY (site) REFERENCES sites(name);

ALTER TABLE ONLY sites ADD CONSTRAINT sites_agent_id_fkey FOREIGN KEY (agent_id) REFERENCES agents(id);

ALTER TABLE ONLY session_spend ADD CONSTRAINT spend_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY turn_steps ADD CONSTRAINT step_turn FOREIGN KEY (session_id, turn_no) REFERENCES turns(session_id, turn_no);

ALTER TABLE ONLY telegram_access ADD CONSTRAINT telegram_access_bot_id_fkey FOREIGN KEY (bot_id) REFERENCES telegram_bots(bot_id);

ALTER TABLE ONLY telegram_bots ADD CONSTRAINT telegram_bots_agent_id_fkey FOREIGN KEY (agent_id) REFERENCES agents(id);

ALTER TABLE ONLY telegram_messages ADD CONSTRAINT telegram_message_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY session_totals ADD CONSTRAINT totals_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY turn_entries ADD CONSTRAINT turn_entry_entry FOREIGN KEY (session_id, seq) REFERENCES entry_rows(session_id, seq);

ALTER TABLE ONLY turn_entries ADD CONSTRAINT turn_entry_turn FOREIGN KEY (session_id, turn_no) REFERENCES turns(session_id, turn_no);

ALTER TABLE ONLY turns ADD CONSTRAINT turn_session FOREIGN KEY (session_id) REFERENCES sessions(id);

ALTER TABLE ONLY turns ADD CONSTRAINT turns_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

ALTER TABLE ONLY uncertain_notices ADD CONSTRAINT uncertain_notice_turn FOREIGN KEY (session_id, turn_no) REFERENCES turns(session_id, turn_no);

ALTER TABLE ONLY uncertain_notices ADD CONSTRAINT uncertain_notices_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

ALTER TABLE ONLY visitors ADD CONSTRAINT visitors_address_id_fkey FOREIGN KEY (address_id) REFERENCES addresses(id);

-- What runs with its owner's rights finds its tables where they were made, and nowhere else.
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION make_months(integer) SET search_path = %I, pg_temp', current_schema());
  EXECUTE format('ALTER FUNCTION drop_months(text, integer) SET search_path = %I, pg_temp', current_schema());
  EXECUTE format('ALTER FUNCTION note_timeline() SET search_path = %I, pg_temp', current_schema());
END $$;

INSERT INTO deployment DEFAULT VALUES;
INSERT INTO agents (name) VALUES ('default');
INSERT INTO sites (name, agent_id) SELECT 'default', id FROM agents WHERE name = 'default';
