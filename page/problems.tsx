import type { PageModel, PageProblem } from '../src/admin/page/page-model.ts';
import { wrongOnes } from '../src/observe/problems.ts';
import { Copyable } from './copyable.tsx';
import { hrefOf, type Query } from './location.ts';
import { Since, Until } from './time.tsx';

/** The colours of the page. */
export const styleOf = (severity: string): string =>
  severity === 'critical' ? 'bad' : severity === 'warning' ? 'warn' : 'ok';

/** What is wrong, the worst first. When all is well there is nothing to read. */
export function Problems({ model: { problems, moreProblems } }: { readonly model: PageModel }) {
  if (problems.length === 0) return null;
  const count = wrongOnes(problems).length + moreProblems;
  return (
    <section aria-labelledby="problems">
      <h2 id="problems">
        {count === 0 ? 'In progress' : count === 1 ? '1 problem' : `${count.toLocaleString('en')} problems`}
      </h2>
      <ul class="problems">
        {problems.map((problem) => (
          <Row key={problem.id} problem={problem} />
        ))}
      </ul>
      {moreProblems > 0 && <p class="dim">and {moreProblems.toLocaleString('en')} more</p>}
    </section>
  );
}

function Row({ problem }: { readonly problem: PageProblem }) {
  const { severity, title, detail, since, until, commands, runbook } = problem;
  const link = linkOf(problem);
  const [from, end] = [Date.parse(since), Date.parse(until)];
  return (
    <li class={styleOf(severity)}>
      <div class="problem">
        <strong>{title}</strong>
        <span class="dim">
          {from > 0 && (
            <>
              for <Since at={from} />
            </>
          )}
          {from > 0 && end > 0 && ', '}
          {end > 0 && (
            <>
              ends <Until at={end} />
            </>
          )}
        </span>
        <span class="links">
          {link !== undefined && <a href={link.href}>{link.text}</a>}
          <a href={hrefOf({ show: 'runbook', name: runbook })}>runbook</a>
        </span>
      </div>
      {detail !== '' && <p class="detail">{detail}</p>}
      <Classes problem={problem} />
      {commands.length > 0 && (
        <p class="detail commands">
          {commands.map((command) => (
            <Copyable key={command} text={command} />
          ))}
        </p>
      )}
    </li>
  );
}

/** Whose clients are concerned; a title has a single class. */
function Classes({ problem }: { readonly problem: PageProblem }) {
  const { classes, clients } = problem;
  if (classes.length <= 1) return null;
  const rest = clients - classes.reduce((sum, one) => sum + one.clients, 0);
  return (
    <ul class="detail shares">
      {classes.map(({ class: of, label, clients: own }) => (
        <li key={`${of} ${label}`}>
          {of === '' ? label : <a href={hrefOf(filterOf(problem, of), '#clients')}>{label}</a>}{' '}
          {own.toLocaleString('en')}
        </li>
      ))}
      {rest > 0 && <li>others {rest.toLocaleString('en')}</li>}
    </ul>
  );
}

/** The list of clients that a problem is about, all of them or those of a class. */
function filterOf({ kind, type, name }: PageProblem, ofClass: string): Query {
  if (kind === 'clients_reject') return { type, state: 'ERROR', resource: name, class: ofClass };
  if (kind === 'clients_silent') return { type, state: 'STALE', class: ofClass };
  // A class gets it, or does not. Of the wildcard the type says all.
  const resource = name === '*' ? '' : name;
  return { type, resource, class: ofClass, state: ofClass === '' || resource === '' ? 'MISSING' : '' };
}

const aboutClients = new Set(['clients_reject', 'clients_silent', 'missing']);
const aboutChanges = new Set(['change_held', 'change_pending']);
const aboutUpstreams = new Set(['upstream_away', 'upstream_stale', 'upstream_streams_end', 'limit_near']);

/** Where the page shows what a problem is about. Undefined: nowhere. */
function linkOf(problem: PageProblem): { readonly href: string; readonly text: string } | undefined {
  const { kind, type, name, classes } = problem;
  if (aboutClients.has(kind)) {
    const [only] = classes;
    const ofClass = classes.length === 1 && only !== undefined ? only.class : '';
    return { href: hrefOf(filterOf(problem, ofClass), '#clients'), text: 'clients' };
  }
  if (aboutUpstreams.has(kind)) return { href: '?#fan-out', text: 'clients' };
  if (type === '') return undefined;
  if (!aboutChanges.has(kind)) return { href: hrefOf({ matrix: type }, '#matrix'), text: 'variants' };
  return name === '' ? undefined : { href: hrefOf({ show: 'resource', type, name }), text: 'resource' };
}
