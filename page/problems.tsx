import type { PageModel, Problem } from '../src/admin/page/model.ts';
import { Since, Until } from './time.tsx';

/** What is wrong, the worst first. When all is well there is nothing to read. */
export function Problems({ model: { problems, moreProblems } }: { readonly model: PageModel }) {
  if (problems.length === 0) return null;
  return (
    <section aria-labelledby="problems">
      <h2 id="problems">
        {problems.length + moreProblems === 1 ? '1 problem' : `${problems.length + moreProblems} problems`}
      </h2>
      <ul class="problems">
        {problems.map((problem) => (
          <Row key={problem.id} problem={problem} />
        ))}
      </ul>
      {moreProblems > 0 && <p class="dim">and {moreProblems} more</p>}
    </section>
  );
}

function Row({ problem }: { readonly problem: Problem }) {
  const { severity, title, detail, since, until, command, runbook, link, linkText } = problem;
  return (
    <li class={severity}>
      <div class="problem">
        <strong>{title}</strong>
        <span class="dim">
          {since > 0 && (
            <>
              for <Since at={since} />
            </>
          )}
          {since > 0 && until > 0 && ', '}
          {until > 0 && (
            <>
              ends <Until at={until} />
            </>
          )}
        </span>
        <span class="links">
          {link !== '' && <a href={link}>{linkText}</a>}
          {runbook !== '' && <a href={`runbooks/${runbook}`}>runbook</a>}
        </span>
      </div>
      {detail !== '' && <p class="detail">{detail}</p>}
      {command !== '' && (
        <p class="detail">
          <code>{command}</code>
        </p>
      )}
    </li>
  );
}
