import type { Plain } from '../admin/service.ts';
import type { ClassProblem, ListClassesResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Problem, ProblemClass } from '../gen/distributary/admin/v1/problems_pb.ts';
import { errorText, shorten } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { isGlob } from '../model/xdstp.ts';
import { missingText } from '../observe/missing-text.ts';
import { countedLong as counted, parametersLabel } from '../observe/problems.ts';
import { classOfProblem, command, globFlags, namesTold, problem } from './problem-parts.ts';

/* What is wrong at clients, by the answer about their classes. */

type ClientFacts = Readonly<Record<'classes', Plain<ListClassesResponse>>>;

/** Of each problem. */
const mostClasses = 40;

/**
 * One error about one resource is one cause, whatever the classes of the clients that say it. Who was sent several
 * resources at once says the same error of all of them.
 */
export function rejections({ classes }: ClientFacts): readonly Plain<Problem>[] {
  const rows = ofKind(classes, 'REJECTED');
  const saying = ({ type, error }: Plain<ClassProblem>): string =>
    JSON.stringify([type, errorText(error, 300)]);
  const named = Map.groupBy(
    rows.filter(({ name }) => name !== ''),
    saying,
  );
  const about = (row: Plain<ClassProblem>): string => {
    const others = new Set(row.name === '' ? named.get(saying(row))?.map(({ what }) => what) : []);
    const [only = row.what] = others;
    return others.size > 1 ? row.what : only;
  };
  // Whoever names the resource comes first: the problem has its name.
  const causes = Map.groupBy(
    rows.toSorted((a, b) => Number(a.name === '') - Number(b.name === '')),
    (row) => JSON.stringify([saying(row), about(row)]),
  );
  return [...causes].flatMap(([key, rows]) => {
    const [first] = rows;
    if (first === undefined) return [];
    const { type, name, what, error } = first;
    const concerned = concernedBy(rows);
    const { clients } = concerned;
    const verb = clients === 1 ? 'rejects' : 'reject';
    const versions = [...new Set(rows.map(versionOf).filter((version) => version !== ''))];
    const version = versions.length === 1 ? ` (version ${versions[0]})` : '';
    return problem('clients_reject', [key], {
      ...concerned,
      severity: 'critical',
      title: `${whoText(concerned)} ${verb} ${shorten(type, 80)} ${shorten(what, 120)}`,
      short: `${counted(clients, 'client')} ${verb} ${shorten(type, 40)}${name === '' ? '' : ` ${shorten(what, 60)}`}`,
      detail: `${errorText(error, 300)}${version}`,
      commands: [
        name === '' ? '' : command('distributary history', '--type', type, '--name', name),
        command('distributary clients', '--type', type, '--state', 'ERROR'),
      ],
      type,
      name,
    });
  });
}

/** As `explain` says it; of several resources the response's. */
function versionOf({ version, content, controlPlaneVersion }: Plain<ClassProblem>): string {
  if (content === undefined) return shorten(controlPlaneVersion ?? version, 60);
  const said =
    controlPlaneVersion === undefined ? '' : `, ${shorten(controlPlaneVersion, 60)} at the control plane`;
  return `${content}${said}`;
}

export function silent({ classes }: ClientFacts): readonly Plain<Problem>[] {
  return [...Map.groupBy(ofKind(classes, 'LATE'), ({ type }) => type)].map(([type, rows]) => {
    const concerned = concernedBy(rows);
    const { clients } = concerned;
    const have = clients === 1 ? 'has' : 'have';
    return problem('clients_silent', [type], {
      ...concerned,
      severity: 'warning',
      title: `${whoText(concerned)} ${have} not acknowledged ${shorten(type, 80)}`,
      short: `${counted(clients, 'client')} ${have} not acknowledged ${shorten(type, 80)}`,
      commands: [command('distributary clients', '--type', type, '--state', 'STALE')],
      type,
    });
  });
}

/**
 * What the same clients ask for by name, and does not exist for them, is one cause. What exists for nobody is for
 * information: it may not be there yet.
 */
export function missing({ classes }: ClientFacts): readonly Plain<Problem>[] {
  const byName = Map.groupBy(ofKind(classes, 'MISSING'), ({ type, name }) => JSON.stringify([type, name]));
  const causes = Map.groupBy(byName.values(), (rows) =>
    JSON.stringify([
      rows[0]?.type,
      rows[0]?.elsewhere,
      rows.map((row) => JSON.stringify([row.class, parametersLabel(row.parameters)])).toSorted(),
    ]),
  );
  return [...causes.values()].flatMap((names) => {
    const [rows = []] = names;
    const [first] = rows;
    if (first === undefined) return [];
    const concerned = concernedBy(rows);
    const { clients } = concerned;
    const { type } = first;
    const listed = names.slice(0, namesTold).map(([row]) => shorten(row?.name ?? '', 80));
    const rest = names.length - listed.length;
    const all = `${listed.join(', ')}${rest > 0 ? ` and ${rest.toLocaleString('en')} more` : ''}`;
    const get = clients === 1 ? 'gets' : 'get';
    // What is nearest to one class is not to another.
    const nearest = rows.every((row) => row.nearest === first.nearest) ? first.nearest : '';
    const why = first.why === '' ? '' : `: ${missingText({ ...first, nearest })}`;
    const [parameters = {}] = rows.map((row) => row.parameters);
    const given = Object.entries(parameters).flatMap(([key, value]) => ['--param', `${key}=${value}`]);
    return problem('missing', [type, JSON.stringify(names.map(([row]) => row?.name))], {
      ...concerned,
      severity: first.elsewhere ? 'warning' : 'info',
      title: `${whoText(concerned)} ${get} no ${shorten(type, 80)} ${all}${why}`,
      short: `${counted(clients, 'client')} ${get} no ${shorten(type, 40)} ${listed[0] ?? ''}${names.length > 1 ? ' …' : ''}`,
      commands: [
        first.name === WILDCARD || isGlob(first.name)
          ? command('distributary resources', '--type', type, ...globFlags(first.name))
          : command('distributary explain', '--type', type, '--name', first.name, ...given),
      ],
      type,
      name: first.name,
    });
  });
}

const ofKind = ({ problems }: Plain<ListClassesResponse>, kind: string): readonly Plain<ClassProblem>[] =>
  problems.filter((one) => one.kind === kind);

type Concerned = Pick<Plain<Problem>, 'clients' | 'classes' | 'since'>;

function concernedBy(rows: readonly Plain<ClassProblem>[]): Concerned {
  const byClass = Map.groupBy(rows, classOfProblem);
  const classes = [...byClass.values()].flatMap((own): Plain<ProblemClass>[] => {
    const [first] = own;
    if (first === undefined) return [];
    const clients = own.reduce((sum, row) => sum + row.clients, 0);
    return [{ class: first.class, parameters: first.parameters, clients }];
  });
  const since = rows.map((row) => row.since).filter((time) => time !== '');
  return {
    clients: rows.reduce((sum, row) => sum + row.clients, 0),
    classes: classes.toSorted((a, b) => b.clients - a.clients).slice(0, mostClasses),
    since: since.toSorted()[0] ?? '',
  };
}

/** `11 clients with env=prod`, `113 clients of 20 classes`. */
function whoText({ clients, classes }: Concerned): string {
  const [first] = classes;
  if (classes.length !== 1 || first === undefined)
    return `${counted(clients, 'client')} of ${classes.length < mostClasses ? '' : 'at least '}${classes.length} classes`;
  return `${counted(clients, 'client')} with ${shorten(parametersLabel(first.parameters), 120)}`;
}
